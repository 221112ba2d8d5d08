// Traces: a span for all that a stream is given, in order; the same foretold as measured; waits.

#include "spool/runtime/trace.h"

#include <atomic>
#include <map>
#include <thread>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/training/step_trace.h"
#include "spool/planner/report/timeline.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/host_link.h"
#include "tests/end_to_end/trace_testing.h"

namespace spool::testing {
namespace {

constexpr double round_off = 1e-9;  // seconds

// Every device that does work.
std::vector<std::unique_ptr<Stream>> devices() {
  std::vector<std::unique_ptr<Stream>> all;
  all.push_back(std::make_unique<CpuStream>(plenty_to_trace, 2));
  if (there_is_cuda()) all.push_back(open_stream({DeviceType::cuda}, plenty_to_trace));
  return all;
}

Spans of(const Spans& all, TraceLane lane, std::optional<Activity> activity = {}) {
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
    double end = -round_off;
    for (const TraceSpan& span : of(all, lane)) {
      EXPECT_GE(span.begin, end - round_off) << text(span);
      EXPECT_GE(span.end, span.begin) << text(span);
      end = span.end;
    }
  }
}

TEST(Trace, EveryKernelHasASpanAndIsMeasuredAsItWasForetold) {
  for (const auto& stream : devices()) {
    const TrainingPlans plans = make_plans(config_to_trace());
    const Measured measured = measure(config_to_trace(), plans, *stream);
    const Spans foretold = foretell(config_to_trace(), plans, *stream);
    expect_in_order(measured.spans);
    expect_in_order(foretold);
    const Spans kernels = of(measured.spans, TraceLane::compute, Activity::kernel);
    EXPECT_EQ(kernels.size(), measured.launches);
    EXPECT_GT(kernels.size(), 200u);
    EXPECT_EQ(texts(kernels), texts(of(foretold, TraceLane::compute, Activity::kernel)));
  }
}

// The bytes that were held at the peak are seen by some kernel; none sees more than the peak.
TEST(Trace, LiveBytesAreTheArenas) {
  for (const auto& stream : devices()) {
    const Measured m = measure(config_to_trace(), make_plans(config_to_trace()), *stream);
    size_t most = 0, at_peak = 0;
    for (const TraceSpan& span : m.spans) most = std::max(most, span.live);
    for (const size_t bytes : m.memory.at_peak_by) at_peak += bytes;
    EXPECT_GE(most, at_peak);
    EXPECT_LE(most, m.memory.peak);
  }
}

TEST(Trace, LiveBytesAreThoseAtTheLaunch) {
  CpuStream stream(plenty_to_trace, 1);
  const auto trace = std::make_shared<Trace>();
  const Traced traced(stream, trace);
  const Tensor a({Shape{1000}}, stream);
  launch(Fill{.out = a}, stream);
  size_t most = stream.memory().live;
  {
    const Tensor b({Shape{5000}}, stream);
    launch(Fill{.out = b}, stream);
    most = stream.memory().live;
  }
  launch(Fill{.out = a}, stream);
  const Spans spans = trace->spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].live, stream.memory().live);
  EXPECT_EQ(spans[1].live, most);
  EXPECT_EQ(spans[2].live, stream.memory().live);
}

TEST(Trace, SaysForWhichOpAKernelIs) {
  MetaStream stream(Machine{});
  std::map<std::string, int> phases;
  {
    const Tensor x({Shape{8, 16}}, stream);
    Parameter weight{.data = Tensor({Shape{16, 16}}, stream)};
    const auto trace = std::make_shared<Trace>();
    const Traced traced(stream, trace);
    Plan plan;
    plan.placement.resize(10, Placement::recompute);
    Tape tape(stream, {.plan = plan});
    const Var h = linear(tape.input(x), weight), y = gelu(h);
    tape.backward({{linear(y, weight), Tensor({Shape{8, 16}}, stream)}});
    for (const TraceSpan& span : trace->spans()) {
      ASSERT_TRUE(span.context) << text(span);
      ++phases[sentence(span.context.task, " ", span.context.op, " ", span.context.node)];
    }
    EXPECT_EQ(stream.trace(), trace.get());
  }
  for (const char* phase :
       {"forward linear 0", "forward gelu 1", "forward linear 2", "replay linear 0",
        "replay gelu 1", "backward linear 2", "backward gelu 1", "backward linear 0"}) {
    EXPECT_GE(phases[phase], 1) << phase;
  }
  EXPECT_EQ(phases.size(), 8u);
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
  std::vector<std::string> phases;
  for (const TraceSpan& span : trace->spans()) {
    phases.emplace_back(span.context ? span.context.task : "none");
  }
  EXPECT_EQ(phases, (std::vector<std::string>{"outer", "inner", "outer", "none"}));
}

TEST(Trace, TheOptimizerHasItsName) {
  const Spans spans = foretell_step(config_to_trace(), make_plans(config_to_trace()), Machine{});
  ASSERT_TRUE(spans.back().context);
  EXPECT_STREQ(spans.back().context.task, "optimizer");
}

TEST(Trace, ChangesNoNumber) {
  const TrainingConfig c = config_to_trace();
  const auto loss = [&](bool traces) {
    CpuStream stream(plenty_to_trace, 2);
    Trainer trainer(c, make_plans(c), stream);
    trainer.initialise();
    std::optional<Traced> traced;
    if (traces) traced.emplace(stream, std::make_shared<Trace>());
    for (int64_t step = 0; step < 2; ++step) trainer.step(step, rows);
    return std::pair(trainer.result().loss, stream.memory().peak);
  };
  EXPECT_EQ(loss(true), loss(false));
}

TEST(Trace, WithoutOneNothingIsCollected) {
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

TEST(Trace, WorkThatFailsHasNoSpanAndHoldsNobodyUp) {
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
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), "the disk is full");
}

TEST(Trace, CopiesThatComputeWaitsForAreExposed) {
  auto all = devices();
  all.push_back(std::make_unique<MetaStream>(Machine{}));
  for (const auto& stream : all) {
    const Spans spans = there_and_back(*stream, long_enough);
    const std::string device = stream->description();
    expect_in_order(spans);
    const double wait = waited(spans, TraceLane::compute);
    EXPECT_GT(wait, 0) << device;
    EXPECT_EQ(exposed_copies(spans), wait / seconds(spans)) << device;
    if (stream->device().type == DeviceType::meta) {
      EXPECT_GE(wait, 0.9 * long_enough);
    }
    EXPECT_EQ(of(spans, TraceLane::compute, Activity::kernel).size(), 3u) << device;
    EXPECT_EQ(of(spans, TraceLane::copy_out, Activity::copy).size(), 1u) << device;
    EXPECT_EQ(of(spans, TraceLane::copy_out, Activity::host).size(), 1u) << device;
    const Spans in = of(spans, TraceLane::copy_in, Activity::copy);
    ASSERT_EQ(in.size(), 1u) << device;
    EXPECT_EQ(in[0].bytes, size_t{4} << 18);
    EXPECT_EQ(in[0].host_live, size_t{4} << 18);
    const Spans computed = of(spans, TraceLane::compute, Activity::kernel);
    EXPECT_EQ(computed.front().host_live, 0u);
    EXPECT_EQ(computed[1].host_live, size_t{4} << 18);
    EXPECT_EQ(computed.back().host_live, 0u) << "the slot is gone";
    EXPECT_GE(computed.back().begin, in[0].end - round_off) << device;
  }
}

TEST(Trace, HostBytesThatWereHeldBeforeAreSeen) {
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

TEST(Trace, CopiesThatAreHiddenAreNot) {
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
  EXPECT_EQ(of(trace->spans(), TraceLane::copy_out).size(), 1u);
}

}  // namespace
}  // namespace spool::testing
