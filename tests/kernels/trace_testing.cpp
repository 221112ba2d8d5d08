#include "tests/kernels/trace_testing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/host_link.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

std::vector<std::unique_ptr<Stream>> traced_devices() {
  std::vector<std::unique_ptr<Stream>> all;
  all.push_back(std::make_unique<CpuStream>(plenty_to_trace, 2));
  if (there_is_cuda()) all.push_back(open_stream({DeviceType::cuda}, plenty_to_trace));
  return all;
}

Spans spans_of(const Spans& all, TraceLane lane, std::optional<Activity> activity) {
  Spans some;
  for (const TraceSpan& span : all) {
    if (span.lane == lane && (!activity || span.activity == *activity)) some.push_back(span);
  }
  return some;
}

std::string text(const TraceSpan& s) {
  const TraceContext& c = s.context;
  return sentence(s.name, " of ", c.task ? c.task : "-", " ", c.op ? c.op : "-", " ", c.node,
                  ", live ", s.live);
}

std::vector<std::string> texts(const Spans& spans) {
  std::vector<std::string> all;
  for (const TraceSpan& span : spans) all.push_back(text(span));
  return all;
}

void expect_in_order(const Spans& all) {
  for (const TraceLane lane : enumerators<TraceLane>()) {
    double end = -clock_error;
    for (const TraceSpan& span : spans_of(all, lane)) {
      EXPECT_GE(span.begin, end - clock_error) << text(span);
      EXPECT_GE(span.end, span.begin) << text(span);
      end = span.end;
    }
  }
}

Spans offload_and_fetch(Stream& stream, double seconds_of_the_disk) {
  const auto trace = std::make_shared<Trace>();
  const Tensor x({Shape{1 << 18}}, stream), y({Shape{1 << 18}}, stream);
  HostLink link(stream, x.nbytes());
  const Traced traced(stream, trace);
  const TraceScope scope(stream.trace(), "offload");
  launch(Fill{.out = x}, stream);
  HostSlot slot(link, x.nbytes(), "x");
  link.begin_out().copy_out(slot.data(), x.view().data(), x.nbytes());
  const auto computed = std::make_shared<std::atomic<bool>>(false);
  link.out().host_work("write", seconds_of_the_disk, [=] {
    while (!*computed) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of_the_disk));
  });
  launch(Fill{.out = y}, stream);
  stream.host_work("computed", 0.0, [=] { *computed = true; });
  stream.wait(link.out().record());
  link.begin_in().copy_in(x.view().data(), slot.data(), x.nbytes());
  stream.wait(link.in().record());
  slot = {};
  launch(Add{.out = y, .a = x}, stream);
  stream.synchronize();  // compute first: an emulated device runs only what is waited for
  return trace->spans();
}

}  // namespace spool::testing
