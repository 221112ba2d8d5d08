// runs: threads
// The part of a trace in which compute waits for copies.

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "spool/planner/report/timeline.h"
#include "spool/runtime/memory/host_link.h"
#include "spool/runtime/meta/stream.h"
#include "tests/kernels/trace_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(ExposedCopies, AreThoseThatComputeWaitsFor) {
  auto all = traced_devices();
  all.push_back(std::make_unique<MetaStream>(Machine{}));
  for (const auto& stream : all) {
    const Spans spans = offload_and_fetch(*stream, slow_disk);
    const std::string device = stream->description();
    expect_in_order(spans);
    const double wait = waited(spans, TraceLane::compute);
    EXPECT_GT(wait, 0) << device;
    EXPECT_EQ(exposed_copies(spans), wait / seconds(spans)) << device;
    if (stream->device().type == DeviceType::meta) {
      EXPECT_GE(wait, 0.9 * slow_disk);
    }
    EXPECT_EQ(spans_of(spans, TraceLane::compute, Activity::kernel).size(), 3u) << device;
    EXPECT_EQ(spans_of(spans, TraceLane::copy_out, Activity::copy).size(), 1u) << device;
    EXPECT_EQ(spans_of(spans, TraceLane::copy_out, Activity::host).size(), 1u) << device;
    const Spans in = spans_of(spans, TraceLane::copy_in, Activity::copy);
    ASSERT_EQ(in.size(), 1u) << device;
    EXPECT_EQ(in[0].bytes, size_t{4} << 18);
    EXPECT_EQ(in[0].host_live, size_t{4} << 18);
    const Spans computed = spans_of(spans, TraceLane::compute, Activity::kernel);
    EXPECT_EQ(computed.front().host_live, 0u);
    EXPECT_EQ(computed[1].host_live, size_t{4} << 18);
    EXPECT_EQ(computed.back().host_live, 0u) << "the slot is freed";
    EXPECT_GE(computed.back().begin, in[0].end - clock_error) << device;
  }
}

TEST(ExposedCopies, ExcludeHiddenOnes) {
  MetaStream stream(Machine{});
  HostLink link(stream, 1 << 20);
  const auto trace = std::make_shared<Trace>();
  const Tensor x({Shape{1000}}, stream), y({Shape{1 << 24}}, stream);
  const HostSlot slot(link, x.nbytes(), "x");
  const Traced traced(stream, trace);
  link.begin_out().copy_out(slot.data(), x.view().data(), x.nbytes());
  launch(Fill{.out = y}, stream);
  stream.wait(link.out().record());
  EXPECT_EQ(exposed_copies(trace->spans()), 0);
  EXPECT_EQ(spans_of(trace->spans(), TraceLane::copy_out).size(), 1u);
}

}  // namespace
}  // namespace spool::testing
