// The trace file of a training step: both processes, their lanes and counters, kernels inside ops.

#include "spool/planner/report/timeline_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/runtime/cpu/stream.h"
#include "tests/end_to_end/trace_testing.h"
#include "tests/planner/timeline_testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

TEST(StepTimeline, HasBothProcessesTheirLanesAndCounters) {
  CpuStream stream(plenty_to_trace, 2);
  const StepPlans plans = make_plans(config_to_trace());
  const Spans measured = measure(config_to_trace(), plans, stream).spans;
  const std::string written =
      trace_json({{.name = "foretold", .spans = foretell(config_to_trace(), plans, stream)},
                  {.name = "measured", .spans = measured}})
          .dump();
  const json file = json::parse(written);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> lanes;
  std::map<int, size_t> max_live;
  for (const json& e : file["traceEvents"]) {
    if (e["name"] == "process_name") processes[e["pid"]] = e["args"]["name"];
    if (e["name"] == "thread_name") lanes[{e["pid"], e["tid"]}] = e["args"]["name"];
    if (e["name"] == "live bytes") {
      EXPECT_EQ(e["ph"], "C");
      max_live[e["pid"]] = std::max(max_live[e["pid"]], e["args"]["bytes"].get<size_t>());
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "foretold"}, {2, "measured"}}));
  for (const int process : {1, 2}) {
    EXPECT_EQ((lanes[{process, 1}]), "compute");
    EXPECT_EQ((lanes[{process, 2}]), "copy out");
    EXPECT_EQ((lanes[{process, 3}]), "copy in");
    EXPECT_EQ((lanes[{process, 5}]), "host");
    const json& summary = file["otherData"][processes[process]];
    EXPECT_EQ(summary["most_live_bytes"], max_live[process]);
    EXPECT_EQ(summary["exposed_copies"], 0.0);
  }
  EXPECT_EQ(max_live[1], max_live[2]);
}

// A viewer draws kernels inside ops; no two kernels and no two ops overlap.
TEST(StepTimeline, KernelsNestInTheirOps) {
  CpuStream stream(plenty_to_trace, 2);
  const Spans spans = measure(config_to_trace(), make_plans(config_to_trace()), stream).spans;
  const json file = trace_json({{.name = "measured", .spans = spans}});
  for (const auto& [thread, events] : threads_of(file)) {
    double op_begin = 0, op_end = 0, end = 0;
    for (const TimelineEvent& e : events) {
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

}  // namespace
}  // namespace spool::testing
