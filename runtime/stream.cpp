#include "spool/runtime/stream.h"

#include "spool/runtime/cpu/processor.h"
#include "spool/runtime/memory/repetition.h"

namespace spool {

Stream::Stream(Device device, const Architecture& architecture, std::shared_ptr<Arena> arena)
    : device_(device), architecture_(architecture), arena_(std::move(arena)) {
  check_processor();
}

void Stream::claim_thread(const char* call) const {
  if (thread_->claim()) return;
  fail(ErrorKind::invalid, description(), ": ", call,
       " was called for on a second thread; let one thread call a stream, make one for each "
       "thread, or call adopt() on this thread when the first does not use the stream any more");
}

// An exception that leaves a noexcept function ends the program with its message.
void Stream::claim_freeing_thread() const noexcept {
  if (thread_->claim()) return;
  fail(ErrorKind::invalid, "a tensor of the stream ",
       device_.type == DeviceType::cuda ? "of a GPU" : name(device_.type),
       " was freed on a second thread, which would corrupt its memory; free it on the thread that "
       "calls the stream, or call adopt() there when the first does not use the stream any more");
}

void Stream::trace(std::shared_ptr<Trace> to, TraceLane lane) {
  trace_ = std::move(to);
  lane_ = lane;
  if (trace_ && device_.type != DeviceType::meta) trace_->add_host_lane();
}

TraceSpan Stream::span(const char* name, Activity activity, size_t bytes) const {
  return {.lane = lane_,
          .activity = activity,
          .name = name,
          .bytes = bytes,
          .live = arena_->stats().live};
}

void Stream::repeat(size_t count, const std::function<void(size_t)>& work) {
  if (count > 0) work(0);
  if (count > 2) {
    Repetition middle(*arena_);
    for (size_t i = 1; i < count - 1; ++i) {
      middle.begin();
      work(i);
      middle.end();
    }
  }
  if (count > 1) work(count - 1);
}

Graph Stream::capture(const std::function<void()>&) {
  fail(ErrorKind::device, "the device ", name(device_.type), " does not capture graphs");
}

void Stream::replay(const Graph&) {
  fail(ErrorKind::device, "the device ", name(device_.type), " does not replay graphs");
}

}  // namespace spool
