// Traces: a span for all that a stream is given, in order; the same foretold as measured; waits.

#include "spool/runtime/trace.h"

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/step_trace.h"
#include "spool/planner/trace_file.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/host_link.h"
#include "training_testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;
using Spans = std::vector<TraceSpan>;

constexpr size_t plenty = size_t{64} << 20;
constexpr double round_off = 1e-9;  // seconds

TrainingConfig config() {
  TrainingConfig c = small();
  c.accumulate = 5;  // more than a rehearsal of time takes
  c.loss_chunk = 16;
  c.dropout = 0.1f;
  return c;
}

// Every device that does work.
std::vector<std::unique_ptr<Stream>> devices() {
  std::vector<std::unique_ptr<Stream>> all;
  all.push_back(std::make_unique<CpuStream>(plenty, 2));
  if (there_is_cuda()) all.push_back(open_stream({DeviceType::cuda}, plenty));
  return all;
}

struct Measured {
  Spans spans;
  uint64_t launches = 0;
  MemoryStats memory = {};
};

Measured measure(const TrainingConfig& c, const TrainingPlans& plans, Stream& stream) {
  Trainer trainer(c, plans, stream);
  trainer.initialise();
  trainer.step(0, rows);
  const auto trace = std::make_shared<Trace>();
  const uint64_t before = stream.launches();
  {
    const Traced traced(stream, trace);
    trainer.step(1, rows);
  }
  const uint64_t launches = stream.launches() - before;
  trainer.step(2, rows);
  return {.spans = trace->spans(), .launches = launches, .memory = stream.memory()};
}

Spans foretell(const TrainingConfig& c, const TrainingPlans& plans, Stream& like) {
  return foretell_step(c, plans, Machine{.architecture = like.architecture()});
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
  return sentence(s.name, " of ", c.phase ? c.phase : "-", " ", c.op ? c.op : "-", " ", c.node,
                  ", live ", s.live);
}

std::vector<std::string> texts(const Spans& spans) {
  std::vector<std::string> all;
  for (const TraceSpan& span : spans) all.push_back(text(span));
  return all;
}

void expect_in_order(const Spans& all) {
  for (size_t lane = 0; lane < lane_count; ++lane) {
    double end = -round_off;
    for (const TraceSpan& span : of(all, static_cast<TraceLane>(lane))) {
      EXPECT_GE(span.begin, end - round_off) << text(span);
      EXPECT_GE(span.end, span.begin) << text(span);
      end = span.end;
    }
  }
}

TEST(Trace, EveryKernelHasASpanAndIsMeasuredAsItWasForetold) {
  for (const auto& stream : devices()) {
    const TrainingPlans plans = make_plans(config());
    const Measured measured = measure(config(), plans, *stream);
    const Spans foretold = foretell(config(), plans, *stream);
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
    const Measured m = measure(config(), make_plans(config()), *stream);
    size_t most = 0, at_peak = 0;
    for (const TraceSpan& span : m.spans) most = std::max(most, span.live);
    for (const size_t bytes : m.memory.at_peak_by) at_peak += bytes;
    EXPECT_GE(most, at_peak);
    EXPECT_LE(most, m.memory.peak);
  }
}

TEST(Trace, LiveBytesAreThoseAtTheLaunch) {
  CpuStream stream(plenty, 1);
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
      ++phases[sentence(span.context.phase, " ", span.context.op, " ", span.context.node)];
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

TEST(Trace, TheOptimizerHasItsName) {
  const Spans spans = foretell_step(config(), make_plans(config()), Machine{});
  ASSERT_TRUE(spans.back().context);
  EXPECT_STREQ(spans.back().context.phase, "optimizer");
}

TEST(Trace, ChangesNoNumber) {
  const TrainingConfig c = config();
  const auto loss = [&](bool traces) {
    CpuStream stream(plenty, 2);
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
  CpuStream stream(plenty, 1);
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
  CpuStream stream(plenty, 1);
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

// Out and back again while compute goes on, then waits: what a step that offloads does.
Spans there_and_back(Stream& stream, double seconds_of_the_disk) {
  const auto trace = std::make_shared<Trace>();
  const Tensor x({Shape{1 << 18}}, stream), y({Shape{1 << 18}}, stream);
  HostLink link(stream, x.nbytes());
  const Traced traced(stream, trace);
  const TraceScope scope(stream.trace(), "offload");
  launch(Fill{.out = x}, stream);
  HostSlot slot(link, x.nbytes(), "x");
  link.begin_out().copy_out(slot.data(), x.view().data(), x.nbytes());
  link.out().host_work("write", seconds_of_the_disk, [=] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of_the_disk));
  });
  launch(Fill{.out = y}, stream);
  stream.wait(link.out().record());
  link.begin_in().copy_in(x.view().data(), slot.data(), x.nbytes());
  stream.wait(link.in().record());
  slot = {};
  launch(Add{.out = y, .a = x}, stream);
  return trace->spans();
}

constexpr double long_enough = 0.05;  // seconds, of a disk

TEST(Trace, CopiesThatComputeWaitsForAreExposed) {
  auto all = devices();
  all.push_back(std::make_unique<MetaStream>(Machine{}));
  for (const auto& stream : all) {
    const Spans spans = there_and_back(*stream, long_enough);
    const std::string device = stream->description();
    expect_in_order(spans);
    EXPECT_GE(waited(spans, TraceLane::compute), 0.9 * long_enough) << device;
    EXPECT_LE(waited(spans, TraceLane::compute), seconds(spans)) << device;
    EXPECT_GT(exposed_copies(spans), 0.5) << device;
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

// As a reader of the format sees it.
struct Event {
  double begin, end;
  std::string name, category;
};

std::map<std::pair<int, int>, std::vector<Event>> threads_of(const json& file) {
  std::map<std::pair<int, int>, std::vector<Event>> threads;
  for (const json& e : file["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const double begin = e["ts"], end = begin + e["dur"].get<double>();
    threads[{e["pid"], e["tid"]}].push_back({begin, end, e["name"], e["cat"]});
  }
  return threads;
}

TEST(TraceFile, HasBothProcessesTheirLanesAndCounters) {
  CpuStream stream(plenty, 2);
  const TrainingPlans plans = make_plans(config());
  const Spans measured = measure(config(), plans, stream).spans;
  const std::string written =
      trace_json({{.name = "foretold", .spans = foretell(config(), plans, stream)},
                  {.name = "measured", .spans = measured}})
          .dump();
  const json file = json::parse(written);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> lanes;
  std::map<int, size_t> most;
  for (const json& e : file["traceEvents"]) {
    if (e["name"] == "process_name") processes[e["pid"]] = e["args"]["name"];
    if (e["name"] == "thread_name") lanes[{e["pid"], e["tid"]}] = e["args"]["name"];
    if (e["name"] == "live bytes") {
      EXPECT_EQ(e["ph"], "C");
      most[e["pid"]] = std::max(most[e["pid"]], e["args"]["bytes"].get<size_t>());
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "foretold"}, {2, "measured"}}));
  for (const int process : {1, 2}) {
    EXPECT_EQ((lanes[{process, 1}]), "compute");
    EXPECT_EQ((lanes[{process, 2}]), "copy out");
    EXPECT_EQ((lanes[{process, 3}]), "copy in");
    EXPECT_EQ((lanes[{process, 4}]), "host");
    const json& summary = file["otherData"][processes[process]];
    EXPECT_EQ(summary["most_live_bytes"], most[process]);
    EXPECT_EQ(summary["exposed_copies"], 0.0);
  }
  EXPECT_EQ(most[1], most[2]);
}

// What a viewer draws below one another: ops, and in them kernels; neither overlaps its like.
TEST(TraceFile, KernelsNestInTheirOps) {
  CpuStream stream(plenty, 2);
  const Spans spans = measure(config(), make_plans(config()), stream).spans;
  const json file = trace_json({{.name = "measured", .spans = spans}});
  for (const auto& [thread, events] : threads_of(file)) {
    double op_begin = 0, op_end = 0, end = 0;
    for (const Event& e : events) {
      EXPECT_EQ(e.begin * 8, std::floor(e.begin * 8)) << "exact in nanoseconds";
      if (e.category == "op") {
        EXPECT_GE(e.begin, op_end) << e.name;
        std::tie(op_begin, op_end) = std::pair(e.begin, e.end);
        continue;
      }
      EXPECT_GE(e.begin, end) << e.name;
      EXPECT_TRUE(e.begin >= op_end || (e.begin >= op_begin && e.end <= op_end)) << e.name;
      end = e.end;
    }
  }
  const auto named = [&](const std::string& name) {
    return std::ranges::any_of(file["traceEvents"],
                               [&](const json& e) { return e["name"] == name; });
  };
  for (const char* name : {"forward layer_norm #2", "optimizer", "matmul"}) {
    EXPECT_TRUE(named(name)) << name;
  }
}

TEST(TraceFile, CopiesAndWaitsHaveNames) {
  MetaStream stream(Machine{});
  const json file =
      trace_json({{.name = "foretold", .spans = there_and_back(stream, long_enough)}});
  std::map<std::string, std::string> categories;
  for (const auto& [thread, events] : threads_of(file)) {
    for (const Event& e : events) categories[e.name] = e.category;
  }
  EXPECT_EQ(categories["copy out: offload"], "copy");
  EXPECT_EQ(categories["copy in: offload"], "copy");
  EXPECT_EQ(categories["write"], "host");
  EXPECT_EQ(categories["wait"], "wait");
  EXPECT_TRUE(contains(file.dump(), "\"host bytes\""));
  EXPECT_GT(file["otherData"]["foretold"]["waited_seconds"]["compute"], 0.9 * long_enough);
}

}  // namespace
}  // namespace spool::testing
