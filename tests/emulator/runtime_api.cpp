#include "runtime_api.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <utility>

#include "capture.h"
#include "device_clock.h"
#include "errors.h"
#include "host_thread.h"
#include "launches.h"
#include "thread_sanitizer.h"

using emulator::Capture;
using emulator::failed;
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
  int device = 0;
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::shared_ptr<Capture> capture;  // that it is or was part of

  bool captured() const { return capture && capture->recording(); }
};
using Clock = std::chrono::steady_clock;
struct CUevent_st {
  int device = 0;
  std::shared_ptr<Queue> queue;
  uint64_t position = 0;
  std::shared_ptr<Capture> capture;         // in which it was recorded, even if that has ended
  emulator::Behind order;                   // if captured
  std::shared_ptr<Clock::time_point> time;  // for timing, once its stream has reached it

  bool captured() const { return capture && capture->recording(); }
};

namespace {

// Reports a call that breaks a rule of the capture.
cudaError_t broken(Capture& capture, cudaError_t rule) {
  capture.invalidate();
  return failed(rule);
}

// What the host may not do with an event: wait for one of a capture, or ask for any during one.
cudaError_t why_not_asked(const CUevent_st& event) {
  if (event.captured()) return broken(*event.capture, cudaErrorStreamCaptureUnsupported);
  Capture::invalidate_all();
  if (Capture::any()) return failed(cudaErrorStreamCaptureUnsupported);
  return event.capture ? failed(cudaErrorCapturedEvent) : cudaSuccess;
}

cudaError_t state_of(const Queue& queue) {
  if (queue.fault.empty()) return cudaSuccess;
  return emulator::failed_kernel(queue.fault);
}

// Runs the first piece of work: for ThreadSanitizer on the device, after what the host did before
// it enqueued the work.
void run_first(void* of) {
  Queue& queue = *static_cast<Queue*>(of);
  emulator::acquire(&queue.pending.front());
  const Work work = std::move(queue.pending.front());
  queue.pending.pop_front();
  ++queue.done;
  if (!queue.fault.empty()) return;
  try {
    work();
  } catch (const std::exception& e) {
    queue.fault = e.what();
  }
}

// Afterwards the caller is behind that work.
void run_until(Queue& queue, uint64_t position) {
  while (queue.done < position) emulator::as_device(run_first, &queue);
  emulator::be_behind_device();
}

cudaError_t wait_for(Queue& queue, uint64_t position) {
  run_until(queue, position);
  return state_of(queue);
}

}  // namespace

namespace emulator {

int device_of(cudaStream_t stream) { return stream->device; }

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  work = timed(std::move(work));
  if (stream->captured()) {
    stream->capture->add(stream->queue.get(), std::move(work));
    return cudaSuccess;
  }
  Queue& queue = *stream->queue;
  queue.pending.push_back(std::move(work));
  release(&queue.pending.back());
  ++queue.enqueued;
  if (device().schedule == Schedule::eager) run_until(queue, queue.enqueued);
  return state_of(queue);
}

uint64_t enqueued(cudaStream_t stream) { return stream->queue->enqueued; }

}  // namespace emulator

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return emulator::enqueue(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return emulator::enqueue(stream, [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*work)(void*), void* data) {
  return emulator::enqueue(stream, [=] { emulator::on_host_thread([=] { work(data); }); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  cudaGetDevice(&(*stream)->device);
  return emulator::use_device();
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
  cudaGetDevice(&(*event)->device);
  if (!(flags & cudaEventDisableTiming)) (*event)->time = std::make_shared<Clock::time_point>();
  return emulator::use_device();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->device != stream->device) return failed(cudaErrorInvalidResourceHandle);
  if (event->time) {
    event->time = std::make_shared<Clock::time_point>();
    const char* const name = emulator::name_next_work("");  // which comes behind the event
    emulator::enqueue(stream, [time = event->time] { *time = emulator::tell_time(); });
    emulator::name_next_work(name);
  }
  const auto capture = stream->captured() ? stream->capture : nullptr;
  const auto order = capture ? capture->order_of(stream->queue.get()) : emulator::Behind();
  *event = {.device = event->device,
            .queue = stream->queue,
            .position = stream->queue->enqueued,
            .capture = capture,
            .order = order,
            .time = event->time};
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t status = why_not_asked(*event); status != cudaSuccess) return status;
  if (!event->queue) return cudaSuccess;
  if (event->queue->done < event->position) return failed(cudaErrorNotReady);
  emulator::be_behind_device();
  return state_of(*event->queue);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t status = why_not_asked(*event); status != cudaSuccess) return status;
  return event->queue ? wait_for(*event->queue, event->position) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (begin->device != end->device) return failed(cudaErrorInvalidResourceHandle);
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
  } else if (event->capture) {
    return failed(cudaErrorCapturedEvent);
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
