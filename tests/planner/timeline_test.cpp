// The trace file of a stream that offloads.

#include "spool/planner/report/timeline_json.h"

#include <nlohmann/json.hpp>

#include "spool/runtime/meta/stream.h"
#include "tests/kernels/trace_testing.h"
#include "tests/planner/timeline_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

TEST(Timeline, NamesCopiesAndWaits) {
  MetaStream stream(Machine{});
  const json file =
      trace_json({{.name = "foretold", .spans = offload_and_fetch(stream, slow_disk)}});
  std::map<std::string, std::string> categories;
  for (const auto& [thread, events] : threads_of(file)) {
    for (const TimelineEvent& e : events) categories[e.name] = e.category;
  }
  EXPECT_EQ(categories["copy out: offload"], "copy");
  EXPECT_EQ(categories["copy in: offload"], "copy");
  EXPECT_EQ(categories["write"], "host");
  EXPECT_EQ(categories["wait"], "wait");
  EXPECT_TRUE(contains(file.dump(), "\"host bytes\""));
  EXPECT_GT(file["otherData"]["foretold"]["waited_seconds"]["compute"], 0.9 * slow_disk);
}

}  // namespace
}  // namespace spool::testing
