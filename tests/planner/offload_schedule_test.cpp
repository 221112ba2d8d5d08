// When offloaded values leave, by the clock of a step.

#include "spool/planner/offload_schedule.h"

#include <gtest/gtest.h>

namespace spool::testing {
namespace {

constexpr NodeId nodes = 6;
constexpr size_t mib = size_t{1} << 20;

// Nodes that take a second each, forward and backward.  The first saves value 1, then value 0.
Survey survey_of_two_values() {
  Survey survey;
  survey.micro_batches = 1;
  for (NodeId n = 0; n < 2 * nodes; ++n) {
    survey.works.push_back({.phase = n < nodes ? Phase::forward : Phase::backward,
                            .node = n < nodes ? n : 2 * nodes - 1 - n,
                            .begin = static_cast<double>(n),
                            .seconds = 1});
  }
  survey.values.resize(2);
  for (const ValueId v : {1, 0}) {
    survey.values[v] = {.bytes = mib, .first_saved = 0, .first_read = 0};
    survey.saves.push_back({.value = v, .node = 0});
  }
  return survey;
}

// Copies run in the order in which the tape saves: the value saved second is released when both
// copies have ended; the first one does not wait for it.
TEST(OffloadSchedule, ReleasesInTheOrderOfSaving) {
  Machine machine;
  machine.to_host_bytes_per_second = machine.from_host_bytes_per_second = mib / 1.5;
  const auto offloads = schedule_offloads({{.value = 0, .bytes = mib}, {.value = 1, .bytes = mib}},
                                          survey_of_two_values(), machine, OffloadTarget::host);
  ASSERT_EQ(offloads.size(), 2);
  EXPECT_EQ(offloads[0].value, 0);
  EXPECT_EQ(offloads[0].release, 4);  // from second 1 on, 3 seconds
  EXPECT_EQ(offloads[1].value, 1);
  EXPECT_EQ(offloads[1].release, 3);  // 1.5 seconds
}

}  // namespace
}  // namespace spool::testing
