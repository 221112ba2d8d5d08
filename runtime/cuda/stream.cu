#include "spool/runtime/cuda/stream.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cuda/arena_memory.h"
#include "spool/runtime/cuda/cudnn.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/finishing.cuh"
#include "spool/runtime/cuda/handles.cuh"
#include "spool/runtime/cuda/host_work.cuh"
#include "spool/runtime/cuda/staging.cuh"
#include "spool/runtime/cuda/trace_origin.cuh"
#include "spool/runtime/integer.h"
#include "spool/runtime/memory/poison.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using cuda::check_call;

// The arena of every CudaStream is one.
struct OwningArena : cuda::ArenaMemory, Arena {
  OwningArena(int index, size_t bytes, const std::string& device)
      : ArenaMemory(index, bytes), Arena(data(), bytes, device) {
#if !defined(__CUDACC__)
    poison_arena(data(), bytes);
    poison(data() + bytes, reserved() - bytes);
#endif
  }
};

std::shared_ptr<Arena> reserve(int index, size_t bytes) {
  const CudaDevice device = cuda_device(index);
  const std::string name = sentence("cuda:", index);
  // What was free when the budget was chosen may be a little less now.
  constexpr size_t min_left = cuda_library_bytes / 2;
  const size_t reserved = round_up(std::max<size_t>(bytes, 1), device.page_bytes);
  if (reserved > device.free_bytes || device.free_bytes - reserved < min_left) {
    fail_memory({.what = name + ": the budget",
                 .needed = bytes,
                 .available = device.bytes_for_an_arena(),
                 .advice = sentence("use a smaller memory budget, or end other programs on ",
                                    device.name, ", which has ", format_bytes(device.bytes), ", ",
                                    format_bytes(device.free_bytes), " of it free, of which ",
                                    format_bytes(cuda_library_bytes),
                                    " are left for what CUDA loads later"),
                 .settings = {"memory"}});
  }
  return std::make_shared<OwningArena>(index, std::max<size_t>(bytes, 1), name);
}

CudaArchitecture architecture_of(int index) {
  const CudaDevice device = cuda_device(index);
  return {.major = device.major, .minor = device.minor, .fused_attention = bool(find_cudnn())};
}

// The graphs that this thread captures: meanwhile CUDA lets it ask for no event.
thread_local int captures_of_thread = 0;

bool waits_for_every_kernel() {
  const char* value = std::getenv("SPOOL_CUDA_SYNC");
  return value && *value && std::string_view(value) != "0";
}

// The most recently launched kernels, oldest first.
class RecentKernels {
 public:
  void add(const char* name) { names_[count_++ % names_.size()] = name; }
  std::string list() const {
    std::string text;
    for (size_t i = count_ - std::min(count_, names_.size()); i < count_; ++i) {
      text += sentence(text.empty() ? "" : ", ", names_[i % names_.size()]);
    }
    return text;
  }

 private:
  std::array<const char*, 8> names_{};
  size_t count_ = 0;
};

}  // namespace

struct CudaStream::State {
  int index;
  const cuda::ArenaMemory& memory;
  cuda::StreamHandle stream = cuda::make_stream();
  cuda::Staging staging{stream.get()};
  RecentKernels recent = {};
  std::optional<Error> error = {};
  std::shared_ptr<cuda::HostFailure> host_failure = std::make_shared<cuda::HostFailure>();
  cuda::Finishing finishing = {};
  bool synchronous = waits_for_every_kernel(), capturing = false;

  State(int device, const cuda::ArenaMemory& of) : index(cuda::made_current(device)), memory(of) {}
};

CudaStream::CudaStream(int index, size_t budget)
    : Stream({DeviceType::cuda, index}, architecture_of(index), reserve(index, budget)),
      state_(std::make_unique<State>(index, cuda::arena_memory(*this))) {}

CudaStream::CudaStream(CudaStream& first)
    : Stream(SideStream{}, first),
      state_(std::make_unique<State>(first.state_->index, first.state_->memory)) {}

CudaStream::~CudaStream() {
  make_current();
  (void)cudaStreamSynchronize(state_->stream.get());
  (void)cudaGetLastError();
  state_->finishing.destroy_all();
  destroy_last();
}

std::string CudaStream::description() const {
  const Cudnn cudnn = find_cudnn();
  const std::string& unshared = state_->memory.why_not_shared();
  return sentence("cuda:", state_->index, " (", cuda_device(state_->index).name,
                  cudnn ? "" : "; " + cudnn.why_not,
                  unshared.empty() ? "" : "; an arena that ranks cannot share: " + unshared, ")");
}

const cuda::ArenaMemory& cuda::arena_memory(CudaStream& stream) {
  return static_cast<const OwningArena&>(stream.arena());
}

void* CudaStream::native() const { return state_->stream.get(); }

std::function<void(std::exception_ptr)> CudaStream::failure() const {
  return [kept = state_->host_failure](std::exception_ptr error) { kept->keep(std::move(error)); };
}

void CudaStream::make_current() const { (void)cudaSetDevice(state_->index); }

void CudaStream::begin_call(const char* name) const {
  check_thread(name);
  if (state_->error) throw Error(*state_->error);
  state_->host_failure->rethrow();
  make_current();
#if !defined(__CUDACC__)  // the emulator's device, which tests may give a clock
  emulator::name_next_work(name);
#endif
}

void CudaStream::fail_with(int status, const std::string& what) {
  (void)cudaGetLastError();
  state_->error.emplace(ErrorKind::device,
                        sentence("cuda:", state_->index, ": ", what, ": ",
                                 cudaGetErrorString(static_cast<cudaError_t>(status))));
  throw Error(*state_->error);
}

void CudaStream::check_enqueued(int status, const char* what) {
  if (status == cudaSuccess) return;
  const std::string kernels = state_->recent.list();
  if (kernels.empty()) fail_with(status, what);
  fail_with(status, sentence(what, " after the kernels ", kernels,
                             " (SPOOL_CUDA_SYNC=1 in the environment shows which one failed)"));
}

void CudaStream::check_launch(const char* name) {
  State& s = *state_;
  s.recent.add(name);
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess && s.synchronous && !s.capturing) {
    status = cudaStreamSynchronize(s.stream.get());
  }
  // A launch may also be the first call to report an error of earlier work.
  const bool own_error =
      s.synchronous || status == cudaErrorInvalidConfiguration || status == cudaErrorInvalidValue;
  if (own_error && status != cudaSuccess) fail_with(status, sentence("the kernel ", name));
  check_enqueued(status, "a launch");
}

// Null while a graph is captured: its work does not run now.
CudaStream::Timer CudaStream::start_timer() {
  if (state_->capturing) return nullptr;
  const auto record_now = [&] {
    cuda::EventHandle event = cuda::make_timing_event();
    check_call(cudaEventRecord(event.get(), state_->stream.get()), "cudaEventRecord");
    return event;
  };
  std::shared_ptr<void>& origins = trace()->origin();
  if (!origins) origins = std::make_shared<cuda::TraceOrigins>();
  auto& own = (*std::static_pointer_cast<cuda::TraceOrigins>(origins))[state_->index];
  if (!own) own = std::make_shared<cuda::TraceOrigin>(record_now());
  return std::make_shared<cuda::EventHandle>(record_now());
}

void CudaStream::stop_timer(const Timer& timer, const char* name, Activity activity, size_t bytes) {
  const auto begin = std::static_pointer_cast<cuda::EventHandle>(timer);
  const auto end = std::static_pointer_cast<cuda::EventHandle>(start_timer());
  const auto origins = std::static_pointer_cast<cuda::TraceOrigins>(trace()->origin());
  trace()->add(span(name, activity, bytes), [origin = origins->at(state_->index), begin, end] {
    return cuda::interval(*origin, *begin, *end);
  });
}

template <class Work>
void CudaStream::traced(const char* name, Activity activity, size_t bytes, const Work& work) {
  const Timer timer = trace() ? start_timer() : nullptr;
  work();
  if (timer) [[unlikely]]
    stop_timer(timer, name, activity, bytes);
}

void CudaStream::enqueue_poison([[maybe_unused]] Poison apply,
                                [[maybe_unused]] const std::byte* data,
                                [[maybe_unused]] size_t bytes) {
#if !defined(__CUDACC__)  // the emulator's device, whose memory is the host's
  emulator::enqueue(state_->stream.get(), [=] { apply(data, bytes); });
#endif
}

void CudaStream::destroy_after_work(std::shared_ptr<void> object) {
  make_current();
  if (is_captured()) return state_->finishing.keep(std::move(object));
  state_->finishing.add(state_->stream.get(), std::move(object));
  destroy_finished();
}

void CudaStream::destroy_finished() {
  if (captures_of_thread == 0) state_->finishing.destroy_done();
  disposal()->destroy();
}

void CudaStream::copy(void* to, const void* from, size_t bytes) {
  begin_call("copy");
  traced("copy", Activity::copy, bytes, [&] {
    check_enqueued(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_->stream.get()),
                   "a copy within the device");
  });
}

void CudaStream::upload(void* to, const void* host, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(host);
  for (size_t at = 0; at < bytes; at += cuda::Staging::half) {
    const size_t piece = std::min(cuda::Staging::half, bytes - at);
    upload(static_cast<std::byte*>(to) + at, piece, [&](std::span<std::byte> staged) {
      std::memcpy(staged.data(), from + at, staged.size());
    });
  }
}

void CudaStream::upload(void* to, size_t bytes, const Fill& fill) {
  begin_call("upload");
  check(captures_of_thread == 0, "cuda: an upload cannot be part of a graph");
  if (bytes == 0) return;
  const bool fits = bytes <= cuda::Staging::half;
  std::unique_ptr<std::byte[]> large;
  if (!fits) large = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::byte* staged = fits ? state_->staging.take(bytes) : large.get();
  fill({staged, bytes});
  traced("upload", Activity::copy, bytes, [&] {
    check_enqueued(cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice, state_->stream.get()),
                   "an upload");
  });
  if (!fits) synchronize();
}

void CudaStream::download(void* host, const void* from, size_t bytes) {
  begin_call("download");
  check(!state_->capturing, "cuda: the host cannot read while a graph is captured");
  if (bytes == 0) return synchronize();
  check_enqueued(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, state_->stream.get()),
                 "a download");
  synchronize();
}

std::shared_ptr<std::byte> CudaStream::host_memory(size_t bytes) {
  begin_call("host_memory()");
  try {
    const auto memory = std::make_shared<cuda::PinnedMemory>(std::max<size_t>(bytes, 1));
    return {memory, memory->data()};
  } catch (const Error& e) {
    fail_memory({.what = "host: the pinned slab for offloaded values",
                 .needed = bytes,
                 .advice = sentence("offload less, or to a disk (", e.what(), ")")});
  }
}

void CudaStream::copy_out(void* host, const void* from, size_t bytes) {
  begin_call("copy out");
  if (bytes == 0) return;
  traced("copy out", Activity::copy, bytes, [&] {
    check_enqueued(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, state_->stream.get()),
                   "a copy to the host");
  });
}

void CudaStream::copy_in(void* to, const void* host, size_t bytes) {
  begin_call("copy in");
  if (bytes == 0) return;
  traced("copy in", Activity::copy, bytes, [&] {
    check_enqueued(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, state_->stream.get()),
                   "a copy from the host");
  });
}

// Whether its work becomes part of a graph, perhaps one that another stream captures.
bool CudaStream::is_captured() const {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  (void)cudaStreamIsCapturing(state_->stream.get(), &capture);  // an error is for the next call
  return capture != cudaStreamCaptureStatusNone;
}

void CudaStream::host_work(const char* name, double, std::function<void()> work) {
  begin_call(name);
  check(!is_captured(), "cuda: ", name, " runs on the host, and cannot be part of a graph");
  auto owner =
      std::make_unique<cuda::HostWork>(cuda::HostWork{std::move(work), state_->host_failure});
  traced(name, Activity::host, /*bytes=*/0, [&] {
    check_enqueued(cudaLaunchHostFunc(state_->stream.get(), &cuda::HostWork::run, owner.get()),
                   name);
    static_cast<void>(owner.release());  // HostWork::run() owns it now
  });
}

std::unique_ptr<Stream> CudaStream::on_host(std::shared_ptr<Arena> memory) {
  auto host = std::make_unique<CpuStream>(std::move(memory));
  host->follow_thread_of(*this);
  return host;
}

Event CudaStream::record() {
  begin_call("record()");
  auto event = std::make_shared<cuda::EventHandle>(cuda::make_event());
  check_call(cudaEventRecord(event->get(), state_->stream.get()), "cudaEventRecord");
  return {.handle = event};
}

void CudaStream::wait(const Event& event) {
  begin_call("wait()");
  if (!event.handle) return;
  const auto& handle = *static_cast<cuda::EventHandle*>(event.handle.get());
  traced("wait", Activity::wait, /*bytes=*/0, [&] {
    check_call(cudaStreamWaitEvent(state_->stream.get(), handle.get(), 0), "cudaStreamWaitEvent");
  });
}

void CudaStream::synchronize() {
  make_current();
  check(!is_captured(), "cuda: the host cannot wait while a graph is captured");
  const cudaError_t status = cudaStreamSynchronize(state_->stream.get());
  begin_call("synchronize()");
  check_enqueued(status, "waiting for the device");
  state_->recent = {};
  destroy_finished();
}

bool CudaStream::captures() const { return !state_->synchronous; }

Graph CudaStream::capture(const std::function<void()>& work) {
  State& s = *state_;
  begin_call("capture()");
  check(!s.capturing, "cuda: a graph is being captured already");
  check_call(cudaStreamBeginCapture(s.stream.get(), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  s.capturing = true;
  ++captures_of_thread;
  cuda::GraphHandle graph;
  const auto end = [&] {
    s.capturing = false;
    --captures_of_thread;
    return cudaStreamEndCapture(s.stream.get(), graph.out());
  };
  try {
    work();
  } catch (...) {
    (void)end();
    (void)cudaGetLastError();
    throw;
  }
  check_call(end(), "cudaStreamEndCapture");
  auto executable = std::make_shared<cuda::GraphExecHandle>();
  check_call(cudaGraphInstantiate(executable->out(), graph.get(), 0), "cudaGraphInstantiate");
  return {.handle = executable};
}

void CudaStream::replay(const Graph& graph) {
  begin_call("replay()");
  check(bool(graph), "cuda: there is no graph to replay");
  const auto& executable = *static_cast<cuda::GraphExecHandle*>(graph.handle.get());
  state_->recent.add("of a graph");
  traced("graph", Activity::kernel, /*bytes=*/0, [&] {
    check_enqueued(cudaGraphLaunch(executable.get(), state_->stream.get()), "a graph");
  });
}

}  // namespace spool
