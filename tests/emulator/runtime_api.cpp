#include "runtime_api.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "capture.h"
#include "sanitizer.h"
#include "shared_memory.h"
#include "watcher.h"

using emulator::Capture;
using emulator::Work;

struct CUgraph_st {
  std::shared_ptr<const emulator::Graph> graph;
};
struct CUgraphExec_st {
  std::shared_ptr<const emulator::Graph> graph;
};

// A stream's progress; events keep it beyond the stream's life.
struct Queue {
  std::deque<Work> pending;
  uint64_t enqueued = 0, done = 0;
  std::string fault;
};
struct CUstream_st {
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::shared_ptr<Capture> capture;  // that it is or was part of

  bool captured() const { return capture && capture->recording(); }
};
using Clock = std::chrono::steady_clock;
struct CUevent_st {
  std::shared_ptr<Queue> queue;
  uint64_t position = 0;
  std::shared_ptr<Capture> capture;
  emulator::Behind order;                   // if captured
  std::shared_ptr<Clock::time_point> time;  // for timing, once its stream has reached it

  bool captured() const { return capture && capture->recording(); }
};

namespace {

std::string last_fault;
cudaError_t last_error = cudaSuccess;
std::map<const void*, size_t> dynamic_limits;  // by kernel
std::map<void*, size_t> allocations;           // bytes, by address

cudaError_t failed(cudaError_t status) { return last_error = status; }

// Reports a call that breaks a rule of the capture.
cudaError_t broken(Capture& capture, cudaError_t rule) {
  capture.invalidate();
  return failed(rule);
}

// Whether a capture forbids to take or give back memory.
bool forbidden() {
  Capture::invalidate_all();
  return Capture::any();
}

cudaError_t state_of(const Queue& queue) {
  if (queue.fault.empty()) return cudaSuccess;
  last_fault = queue.fault;
  return failed(cudaErrorLaunchFailure);
}

void run_until(Queue& queue, uint64_t position) {
  while (queue.done < position) {
    const Work work = std::move(queue.pending.front());
    queue.pending.pop_front();
    ++queue.done;
    if (!queue.fault.empty()) continue;
    try {
      work();
    } catch (const std::exception& e) {
      queue.fault = e.what();
    }
  }
}

cudaError_t wait_for(Queue& queue, uint64_t position) {
  run_until(queue, position);
  return state_of(queue);
}

// Every allocation is followed by a poisoned zone.
size_t mapped(size_t bytes) {
  constexpr size_t page = 4096;
  return (bytes + page - 1) / page * page + page;
}

void* reserve(size_t bytes) {
  void* memory = ::mmap(nullptr, mapped(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  emulator::poison(static_cast<char*>(memory) + bytes, mapped(bytes) - bytes);
  if (emulator::watcher) emulator::watcher->memory_made(memory, bytes);
  return memory;
}

void give_back(void* memory, size_t bytes) {
  if (emulator::watcher) emulator::watcher->memory_gone(memory);
  emulator::unpoison(memory, mapped(bytes));
  ::munmap(memory, mapped(bytes));
}

}  // namespace

namespace emulator {

Device& device() {
  static Device device = [] {
    const char *visible = std::getenv("CUDA_VISIBLE_DEVICES"),
               *at = std::getenv("EMULATOR_FAILS_AT");
    return Device{.count = visible && !*visible ? 0 : 1,
                  .fails_at = at ? std::strtoull(at, nullptr, 10) : 0};
  }();
  return device;
}

void fail_if_told() {
  static uint64_t kernels = 0;
  if (++kernels == device().fails_at) throw Error("an emulated failure");
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->captured()) {
    stream->capture->add(stream->queue.get(), std::move(work));
    return cudaSuccess;
  }
  Queue& queue = *stream->queue;
  queue.pending.push_back(std::move(work));
  ++queue.enqueued;
  if (device().schedule == Schedule::eager) run_until(queue, queue.enqueued);
  return state_of(queue);
}

cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& c) {
  const dim3 g = c.gridDim, b = c.blockDim;
  constexpr unsigned max_blocks = 65535, max_blocks_x = 0x7fffffff;
  constexpr unsigned max_threads = 1024, max_threads_z = 64;
  const uint64_t blocks = uint64_t{g.x} * g.y * g.z, threads = uint64_t{b.x} * b.y * b.z;
  if (blocks == 0 || g.x > max_blocks_x || g.y > max_blocks || g.z > max_blocks || threads == 0 ||
      threads > max_threads || b.z > max_threads_z) {
    return failed(cudaErrorInvalidConfiguration);
  }
  const auto limit = dynamic_limits.find(kernel);
  const size_t shared =
      limit == dynamic_limits.end() ? SharedMemory::max_static_bytes : limit->second;
  return c.dynamicSmemBytes > shared ? failed(cudaErrorInvalidValue) : cudaSuccess;
}

}  // namespace emulator

using emulator::device;

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorLaunchFailure:
      return last_fault.c_str();
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge:
      return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched:
      return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
  }
  return "unrecognized error code";
}
const char* cudaGetErrorName(cudaError_t) { return "emulated"; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device().count;
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int index) {
  return index >= 0 && index < device().count ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = device().driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = device().runtime;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? device().multiprocessors
           : attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin
               ? int{emulator::SharedMemory::max_bytes}
           : attribute == cudaDevAttrComputeCapabilityMajor ? device().major
                                                            : device().minor;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof properties->name, "%s", device().name.c_str());
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = device().bytes;
  *free = device().bytes - device().used;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->sharedSizeBytes = 0;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const auto bytes = static_cast<size_t>(value);
  if (value < 0 || bytes > emulator::SharedMemory::max_bytes) return failed(cudaErrorInvalidValue);
  dynamic_limits[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (forbidden()) return failed(cudaErrorStreamCaptureUnsupported);
  if (bytes > device().bytes - device().used) return failed(cudaErrorMemoryAllocation);
  if (!(*memory = reserve(bytes))) return failed(cudaErrorMemoryAllocation);
  device().used += allocations[*memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (forbidden()) return failed(cudaErrorStreamCaptureUnsupported);
  if (!memory) return cudaSuccess;
  const auto found = allocations.find(memory);
  if (found == allocations.end()) return failed(cudaErrorInvalidValue);
  give_back(memory, found->second);
  device().used -= found->second;
  allocations.erase(found);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (forbidden()) return failed(cudaErrorStreamCaptureUnsupported);
  constexpr size_t page = 4096;  // as CUDA does
  *memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  return *memory ? cudaSuccess : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* memory) {
  if (forbidden()) return failed(cudaErrorStreamCaptureUnsupported);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return emulator::enqueue(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return emulator::enqueue(stream, [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*work)(void*), void* data) {
  return emulator::enqueue(stream, [=] { work(data); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run_until(*stream->queue, stream->queue->enqueued);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->captured()) return broken(*stream->capture, cudaErrorStreamCaptureUnsupported);
  return wait_for(*stream->queue, stream->queue->enqueued);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  if (!(flags & cudaEventDisableTiming)) (*event)->time = std::make_shared<Clock::time_point>();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->time) {
    event->time = std::make_shared<Clock::time_point>();
    emulator::enqueue(stream, [time = event->time] { *time = Clock::now(); });
  }
  const auto order =
      stream->captured() ? stream->capture->order_of(stream->queue.get()) : emulator::Behind();
  *event = {stream->queue, stream->queue->enqueued, stream->capture, order, event->time};
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->captured()) return broken(*event->capture, cudaErrorStreamCaptureUnsupported);
  if (!event->queue) return cudaSuccess;
  return event->queue->done < event->position ? failed(cudaErrorNotReady) : state_of(*event->queue);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->captured()) return broken(*event->capture, cudaErrorStreamCaptureUnsupported);
  return event->queue ? wait_for(*event->queue, event->position) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  for (cudaEvent_t event : {begin, end}) {
    if (!event->time || *event->time == Clock::time_point()) return failed(cudaErrorInvalidValue);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->captured()) {  // joins that capture
    if (stream->captured() && stream->capture != event->capture) {
      stream->capture->invalidate();
      return broken(*event->capture, cudaErrorStreamCaptureMerge);
    }
    stream->capture = event->capture;
    stream->capture->join(stream->queue.get(), event->order);
  } else if (stream->captured() && event->queue) {
    return broken(*stream->capture, cudaErrorStreamCaptureIsolation);
  } else if (event->queue && event->queue != stream->queue) {
    return emulator::enqueue(stream, [queue = event->queue, at = event->position] {
      run_until(*queue, at);
      if (!queue->fault.empty()) throw emulator::Error(queue->fault);
    });
  }
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->captured()) return broken(*stream->capture, cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<Capture>(stream->queue.get());
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->captured() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->captured()) return failed(cudaErrorInvalidValue);
  cudaError_t why = cudaSuccess;
  std::shared_ptr<const emulator::Graph> ended = stream->capture->end(stream->queue.get(), why);
  *graph = ended ? new CUgraph_st{std::move(ended)} : nullptr;
  return why == cudaSuccess ? why : failed(why);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->graph};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return emulator::enqueue(stream, [graph = exec->graph] { graph->replay(); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
