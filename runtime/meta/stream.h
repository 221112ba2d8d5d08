#pragma once

// A stream that runs nothing.  It counts bytes with the allocator of the device and seconds with
// its roofline, so that a step run here foretells its peak memory and its duration.

#include <limits>

#include "spool/runtime/stream.h"

namespace spool {

class MetaStream final : public Stream {
 public:
  static constexpr size_t unlimited = std::numeric_limits<size_t>::max() / 2;

  // Pretends to be the machine.  Without a capacity it never runs out.
  explicit MetaStream(const Machine& machine, size_t capacity = unlimited);
  // With memory that somebody else cuts up.
  MetaStream(const Machine& machine, std::shared_ptr<Arena> memory);

  // Another queue of the same machine and memory, whose clock begins where this one is.
  explicit MetaStream(const MetaStream& beside)
      : Stream(Beside{}, beside), machine_(beside.machine_), now_(beside.now_) {}

  void charge(const char* name, const Cost& cost) {
    pass(name, Activity::kernel, machine_.seconds(cost));
  }
  double now() const { return now_; }  // seconds since the start
  const Machine& machine() const { return machine_; }

  std::string description() const override { return "meta, as " + machine_.name; }
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
  Event record() override { return {.time = now_}; }
  void wait(const Event& e) override {
    if (e.time > now_) pass("wait", Activity::wait, e.time - now_);
  }
  void synchronize() override {}

 private:
  void pass(const char* name, Activity activity, double seconds, size_t bytes = 0) {
    const double begin = now_;
    now_ += seconds;
    if (trace()) [[unlikely]]
      trace()->add(span(name, activity, bytes), {begin, now_});
  }
  double host_seconds(size_t bytes) const {
    return static_cast<double>(bytes) / machine_.host_bytes_per_second;
  }

  Machine machine_;
  double now_ = 0;
};

}  // namespace spool
