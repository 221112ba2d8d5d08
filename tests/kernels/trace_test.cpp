// runs: threads
// Traces of kernels: live bytes at each launch, nested scopes, and work that fails.

#include "spool/runtime/trace.h"

#include <atomic>
#include <thread>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/host_link.h"
#include "spool/runtime/meta/stream.h"
#include "tests/kernels/trace_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Trace, SpansHaveTheLiveBytesAtTheirLaunch) {
  CpuStream stream(plenty_to_trace, 1);
  const auto trace = std::make_shared<Trace>();
  const Traced traced(stream, trace);
  const Tensor a({Shape{1000}}, stream);
  launch(Fill{.out = a}, stream);
  size_t max_live = stream.memory().live;
  {
    const Tensor b({Shape{5000}}, stream);
    launch(Fill{.out = b}, stream);
    max_live = stream.memory().live;
  }
  launch(Fill{.out = a}, stream);
  const Spans spans = trace->spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].live, stream.memory().live);
  EXPECT_EQ(spans[1].live, max_live);
  EXPECT_EQ(spans[2].live, stream.memory().live);
}

TEST(Trace, ScopesNest) {
  MetaStream stream(Machine{});
  const Tensor a({Shape{10}}, stream);
  const auto trace = std::make_shared<Trace>();
  const Traced traced(stream, trace);
  {
    const TraceScope outer(stream.trace(), "outer");
    launch(Fill{.out = a}, stream);
    {
      const TraceScope inner(stream.trace(), "inner");
      launch(Fill{.out = a}, stream);
    }
    launch(Fill{.out = a}, stream);
  }
  launch(Fill{.out = a}, stream);
  std::vector<std::string> tasks;
  for (const TraceSpan& span : trace->spans()) {
    tasks.emplace_back(span.context ? span.context.task : "none");
  }
  EXPECT_EQ(tasks, (std::vector<std::string>{"outer", "inner", "outer", "none"}));
}

TEST(Trace, CollectsOnlyWhileItIsOn) {
  CpuStream stream(plenty_to_trace, 1);
  const Tensor a({Shape{10}}, stream);
  const auto trace = std::make_shared<Trace>();
  EXPECT_EQ(stream.trace(), nullptr);
  launch(Fill{.out = a}, stream);
  {
    const Traced traced(stream, trace);
    launch(Fill{.out = a}, stream);
  }
  EXPECT_EQ(stream.trace(), nullptr);
  launch(Fill{.out = a}, stream);
  const TraceScope scope(stream.trace(), "forward");
  EXPECT_EQ(trace->spans().size(), 1u);
}

TEST(Trace, FailedWorkHasNoSpanAndBlocksNoReader) {
  CpuStream stream(plenty_to_trace, 1);
  const Tensor a({Shape{10}}, stream);
  const auto trace = std::make_shared<Trace>();
  std::atomic<bool> go = false;
  {
    const Traced traced(stream, trace);
    launch(Fill{.out = a}, stream);
    stream.host_work("spill", 0.0, [&go] {
      while (!go) std::this_thread::yield();
      fail(ErrorKind::file, "the disk is full");
    });
    launch(Fill{.out = a}, stream);
  }
  go = true;
  EXPECT_EQ(trace->spans().size(), 1u);
  expect_error(ErrorKind::file, {"the disk is full"}, [&] { stream.synchronize(); });
}

TEST(Trace, CountsHostBytesAllocatedBeforeIt) {
  MetaStream stream(Machine{});
  HostLink link(stream, 1 << 20);
  const HostSlot before(link, HostLink::alignment, "before");
  const Tensor x({Shape{1000}}, stream);
  const auto trace = std::make_shared<Trace>();
  const Traced traced(stream, trace);
  launch(Fill{.out = x}, stream);
  const HostSlot slot(link, HostLink::alignment, "slot");
  launch(Fill{.out = x}, stream);
  const Spans spans = trace->spans();
  EXPECT_EQ(spans[0].host_live, HostLink::alignment);
  EXPECT_EQ(spans[1].host_live, 2 * HostLink::alignment);
}

}  // namespace
}  // namespace spool::testing
