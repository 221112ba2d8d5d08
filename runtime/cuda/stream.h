#pragma once

// The cuda device: work is enqueued on a CUDA stream and done in order, on memory that was taken
// once, with one cudaMalloc, when the stream was opened.  This header is free of CUDA's.
//
// Uploads go through pinned host memory; the host waits for the device in download() and
// synchronize(), and in an upload only where more is on its way than that memory holds.
//
// With SPOOL_CUDA_SYNC=1 in the environment the host waits after every kernel, and nothing is
// recorded, so that an error of the device names the kernel that met it; without, it names those
// that may have.

#include <memory>
#include <typeindex>
#include <unordered_map>

#include "spool/runtime/stream.h"

namespace spool {

class CudaStream final : public Stream {
 public:
  // Takes `budget` bytes of the device.  Throws where there is no such device, or not one of
  // compute capability 8.0 at least, or it has less free.
  CudaStream(int index, size_t budget);
  // A second queue of the same device, over the same memory; what orders the two is events.
  explicit CudaStream(CudaStream& beside);
  ~CudaStream() override;

  // work() enqueues a kernel of this name on native().
  template <class Work>
  void enqueue(const char* name, const Work& work) {
    rethrow();
    const Timer timer = trace() ? start_timer() : nullptr;
    work();
    launched(name);
    if (timer) [[unlikely]]
      stop_timer(timer, name, Activity::kernel);
  }

  // The cudaStream_t.
  void* native() const;

  // What a library keeps for a stream, made when first asked for, gone with the stream.
  template <class Library>
  Library& library() {
    std::shared_ptr<void>& entry = libraries_[typeid(Library)];
    if (!entry) entry = std::make_shared<Library>(*this);
    return *static_cast<Library*>(entry.get());
  }

  std::string description() const override;
  void mark(Mark how, const std::byte* data, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void upload(void* to, const void* host, size_t bytes) override;
  void upload(void* to, size_t bytes, const Fill& fill) override;
  void download(void* host, const void* from, size_t bytes) override;
  std::unique_ptr<Stream> side_stream() override { return std::make_unique<CudaStream>(*this); }
  std::shared_ptr<std::byte> host_memory(size_t bytes) override;
  void copy_out(void* host, const void* from, size_t bytes) override;
  void copy_in(void* to, const void* host, size_t bytes) override;
  void host_work(const char* name, double seconds, std::function<void()> work) override;
  std::unique_ptr<Stream> on_host(std::shared_ptr<Arena> memory) override;
  Event record() override;
  void wait(const Event&) override;
  void synchronize() override;
  bool captures() const override;
  Graph capture(const std::function<void()>& work) override;
  void replay(const Graph&) override;

 private:
  struct State;
  using Timer = std::shared_ptr<void>;

  template <class Work>
  void traced(const char* name, Activity activity, size_t bytes, const Work& work);
  Timer start_timer();
  void stop_timer(const Timer&, const char* name, Activity, size_t bytes = 0);
  void rethrow() const;
  void launched(const char* name);
  void done(int status, const char* what);
  [[noreturn]] void fail_with(int status, const std::string& what);

  std::unique_ptr<State> state_;
  std::unordered_map<std::type_index, std::shared_ptr<void>> libraries_;
};

}  // namespace spool
