// Public: one of the headers of docs/public-headers.md.
#pragma once

// A stream that runs nothing.  It counts bytes with the device's allocator, and seconds with the
// machine's measured kernels and, for others, its roofline (kernel_times.h), so that a rehearsal on
// it predicts peak memory and duration.

#include <limits>
#include <vector>

#include "spool/runtime/meta/kernel_times.h"
#include "spool/runtime/stream.h"

namespace spool {

class MetaStream final : public Stream {
 public:
  static constexpr size_t unlimited = std::numeric_limits<size_t>::max() / 2;

  // Simulates the machine.  Without a capacity, memory is unlimited.
  explicit MetaStream(const Machine& machine, size_t capacity = unlimited);
  // On the memory of an existing arena.
  MetaStream(const Machine& machine, std::shared_ptr<Arena> memory);

  // A second stream of the same machine and memory, whose clock starts at the first one's time.
  explicit MetaStream(const MetaStream& first)
      : Stream(SideStream{}, first), machine_(first.machine_), clock_{.now = first.now()} {}

  void charge(const char* name, const Cost& cost) {
    advance(name, Activity::kernel, kernel_seconds(machine_, name, cost), cost);
  }
  // Notes a kernel that has no implementation for devices of this kind; launch() calls it.
  void add_missing(DeviceType, const char* kernel);
  // The kernels noted for the machine's kind of device, each once.
  const std::vector<const char*>& missing() const { return missing_; }
  double now() const { return clock_.now; }    // seconds since the start
  double busy() const { return clock_.busy; }  // seconds since the start, without waits
  struct Clock {
    double now = 0, busy = 0;
  };
  Clock clock() const { return clock_; }
  void set_clock(const Clock& clock) { clock_ = clock; }
  const Machine& machine() const { return machine_; }

  std::string description() const override { return "meta, as " + machine_.name; }
  void destroy_after_work(std::shared_ptr<void>) override {}
  void copy(void* to, const void* from, size_t bytes) override;
  void upload(void* to, const void* host, size_t bytes) override;
  void upload(void* to, size_t bytes, const Fill& fill) override;
  void download(void* host, const void* from, size_t bytes) override;
  std::unique_ptr<Stream> side_stream() override { return std::make_unique<MetaStream>(*this); }
  std::shared_ptr<std::byte> host_memory(size_t bytes) override;
  void copy_out(void* host, const void* from, size_t bytes) override;
  void copy_in(void* to, const void* host, size_t bytes) override;
  void host_work(const char* name, double seconds, std::function<void()> work) override;
  std::unique_ptr<Stream> on_host(std::shared_ptr<Arena> memory) override;
  // Without a trace: calls work(0), work(1) and work(count - 1), and counts the time and launches
  // of work(1) for those left out.  The clocks of other streams, such as a side stream to which the
  // work offloads, do not count them.
  void repeat(size_t count, const std::function<void(size_t)>& work) override;
  Event record() override { return {.time = now()}; }
  void wait(const Event& e) override {
    if (e.time > now()) advance("wait", Activity::wait, e.time - now());
  }
  void synchronize() override {}

 private:
  void advance(const char* name, Activity activity, double seconds, const Cost& cost = {}) {
    check_thread(name);
    const double begin = now();
    clock_.now += seconds;
    if (activity != Activity::wait) clock_.busy += seconds;
    if (trace()) [[unlikely]]
      add_span(name, activity, cost, begin);
  }
  void add_span(const char* name, Activity, const Cost&, double begin);
  void copy_from_host(const char* name, size_t bytes);

  Machine machine_;
  Clock clock_ = {};
  std::vector<const char*> missing_;
};

}  // namespace spool
