#include "tests/models/optimizers/failing_link.h"

namespace spool::testing {
namespace {

class FailingStream final : public Stream {
 public:
  FailingStream(Stream& compute, std::unique_ptr<Stream> queue, CallCounter& calls)
      : Stream(SideStream{}, compute), queue_(std::move(queue)), calls_(calls) {}

  std::string description() const override { return queue_->description(); }
  void destroy_after_work(std::shared_ptr<void> object) override {
    queue_->destroy_after_work(std::move(object));
  }
  void copy(void* to, const void* from, size_t bytes) override { queue_->copy(to, from, bytes); }
  void upload(void* to, const void* host, size_t bytes) override {
    queue_->upload(to, host, bytes);
  }
  void upload(void* to, size_t bytes, const Fill& fill) override {
    queue_->upload(to, bytes, fill);
  }
  void download(void* host, const void* from, size_t bytes) override {
    queue_->download(host, from, bytes);
  }
  std::unique_ptr<Stream> side_stream() override { return queue_->side_stream(); }
  std::shared_ptr<std::byte> host_memory(size_t bytes) override {
    return queue_->host_memory(bytes);
  }
  void copy_out(void* host, const void* from, size_t bytes) override {
    calls_.count();
    queue_->copy_out(host, from, bytes);
  }
  void copy_in(void* to, const void* host, size_t bytes) override {
    calls_.count();
    queue_->copy_in(to, host, bytes);
  }
  void host_work(const char* name, double seconds, std::function<void()> work) override {
    calls_.count();
    queue_->host_work(name, seconds, std::move(work));
  }
  std::unique_ptr<Stream> on_host(std::shared_ptr<Arena> memory) override {
    return queue_->on_host(std::move(memory));
  }
  Event record() override {
    calls_.count();
    return queue_->record();
  }
  void wait(const Event& event) override {
    calls_.count();
    queue_->wait(event);
  }
  void synchronize() override { queue_->synchronize(); }

 private:
  std::unique_ptr<Stream> queue_;
  CallCounter& calls_;
};

}  // namespace

void CallCounter::count() {
  ++counted_;
  if (left_-- == 0) fail(ErrorKind::device, "a call that is to fail");
}

std::unique_ptr<HostLink> failing_link(Stream& compute, size_t bytes, CallCounter& calls) {
  const auto make = [&] {
    return std::make_unique<FailingStream>(compute, compute.side_stream(), calls);
  };
  return std::make_unique<HostLink>(compute, bytes, make(), make());
}

std::unique_ptr<Stream> FailingCpuStream::side_stream() {
  return std::make_unique<FailingStream>(*this, CpuStream::side_stream(), calls);
}

void FailingCpuStream::copy(void* to, const void* from, size_t bytes) {
  calls.count();
  CpuStream::copy(to, from, bytes);
}

Event FailingCpuStream::record() {
  calls.count();
  return CpuStream::record();
}

void FailingCpuStream::wait(const Event& event) {
  calls.count();
  CpuStream::wait(event);
}

}  // namespace spool::testing
