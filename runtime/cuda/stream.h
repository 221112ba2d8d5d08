// Public: one of the headers of docs/public-headers.md.
#pragma once

// The cuda device: work is enqueued on a CUDA stream and runs in order, on memory that is taken
// when the stream is opened (arena_memory.h).  This header includes none of CUDA's.
//
// Uploads go through pinned host memory.  The host waits for the device in download() and
// synchronize(), and in an upload only if the pinned memory is full.
//
// With SPOOL_CUDA_SYNC=1 in the environment the host waits after every kernel, and no graphs are
// captured, so that a device error names the kernel that failed; otherwise the error names all
// kernels that may have failed.

#include <exception>
#include <functional>
#include <memory>
#include <typeindex>
#include <utility>
#include <vector>

#include "spool/runtime/stream.h"

namespace spool {

class CudaStream final : public Stream {
 public:
  // Allocates `budget` bytes of the device.  Throws if there is no such device, its compute
  // capability is below 8.0, or it has less free memory.
  CudaStream(int index, size_t budget);
  // A second stream of the same device and memory; only events order the two.
  explicit CudaStream(CudaStream& first);
  ~CudaStream() override;

  // Calls work(), which enqueues a kernel of this name on native().
  template <class Work>
  void enqueue(const char* name, const Work& work) {
    begin_call(name);
    const Timer timer = trace() ? start_timer() : nullptr;
    work();
    check_launch(name);
    if (timer) [[unlikely]]
      stop_timer(timer, name, Activity::kernel);
  }

  // The cudaStream_t.
  void* native() const;

  // Makes the stream fail: its next call throws the error.  May be called by another thread.
  std::function<void(std::exception_ptr)> failure() const;

  // The state of a library for this stream, created at its first use and destroyed with the stream.
  template <class Library>
  Library& library() {
    for (const auto& [type, library] : libraries_) {
      if (type == typeid(Library)) return *static_cast<Library*>(library.get());
    }
    make_current();
    auto created = std::make_shared<Library>(*this);
    libraries_.emplace_back(typeid(Library), created);
    return *created;
  }

  std::string description() const override;
  void enqueue_poison(Poison, const std::byte* data, size_t bytes) override;
  void destroy_after_work(std::shared_ptr<void> object) override;
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
  // Makes the device the thread's current one, whose is what CUDA and its libraries make.
  void make_current() const;
  // Checks the thread, rethrows errors of earlier work, and makes the device current.
  void begin_call(const char* name) const;
  bool is_captured() const;
  void destroy_finished();
  void check_launch(const char* name);
  // Checks a call that may report errors of earlier work.
  void check_enqueued(int status, const char* what);
  [[noreturn]] void fail_with(int status, const std::string& what);

  std::unique_ptr<State> state_;
  std::vector<std::pair<std::type_index, std::shared_ptr<void>>> libraries_;
};

}  // namespace spool
