// What is said of parameters and gradients on the host: in words, and when copies are the limit.

#include "spool/planner/report/home_words.h"

#include <gtest/gtest.h>

#include <limits>

#include "spool/planner/report/link_limit.h"
#include "spool/planner/report/plan_diff.h"

namespace spool::testing {
namespace {

PlannedUnit unit(NodeId first, NodeId last, bool parameters, bool gradients) {
  return {.first = first,
          .last = last,
          .parameters = {static_cast<uint32_t>(first)},
          .first_readers = {first},
          .parameters_away = parameters,
          .gradients_away = gradients,
          .forward_fetch = first,
          .backward_fetch = last};
}

TEST(HomeWords, CountUnitsThatAreAway) {
  Plan plan{.optimizer_state = OptimizerState::streamed,
            .units = {unit(0, 1, true, true), unit(2, 3, false, false), unit(4, 5, true, true)}};
  EXPECT_EQ(homes_in_words(plan), "parameters and gradients of 2 of 3 units on the host");
  EXPECT_EQ(homes_sentence(plan),
            "Parameters and gradients of 2 of 3 units live on the host; what a unit needs is "
            "copied to the device before its nodes run, and its gradients leave as soon as they "
            "are final.");
  plan.update = UpdateTime::backward;
  EXPECT_EQ(homes_in_words(plan),
            "parameters and gradients of 2 of 3 units on the host, updated in backward");
  EXPECT_TRUE(homes_sentence(plan).ends_with(
      ", and in backward each parameter is updated as soon as its gradient is final, so that no "
      "gradients pile up."));
  plan.units[1].gradients_away = true;
  EXPECT_EQ(homes_in_words(plan),
            "parameters of 2 and gradients of 3 of 3 units on the host, updated in backward");
}

TEST(HomeWords, OfFrozenParametersSayNothingOfGradients) {
  const Plan plan{.units = {unit(0, 1, true, false)}};
  EXPECT_EQ(homes_in_words(plan), "parameters of 1 of 1 unit on the host");
  EXPECT_EQ(homes_sentence(plan),
            "Parameters of 1 of 1 unit live on the host; what a unit needs is copied to the "
            "device before its nodes run.");
}

TEST(HomeWords, AreFewOfWhatIsOnTheDevice) {
  EXPECT_EQ(homes_in_words({}), "");
  EXPECT_EQ(homes_sentence({}), "");
  Plan plan{.units = {unit(0, 1, false, false)}};
  EXPECT_EQ(homes_in_words(plan), "");
  plan.update = UpdateTime::backward;
  EXPECT_EQ(homes_in_words(plan), "parameters updated in backward");
  EXPECT_EQ(homes_sentence(plan),
            "In backward each parameter is updated as soon as its gradient is final, so that no "
            "gradients pile up.");
}

TEST(HomeWords, OfADifferenceSayWhatMovesAndWhen) {
  Plan a{.optimizer_state = OptimizerState::streamed,
         .units = {unit(0, 1, true, true), unit(2, 3, false, false), unit(4, 5, true, true)}};
  Plan b = a;
  b.units[0].forward_fetch = 0;
  b.units[0].backward_fetch = 3;
  b.units[1] = unit(2, 3, true, false);
  b.units[1].in_backward = false;
  b.units[2].stays = b.units[2].all_in_forward = true;
  b.update = UpdateTime::backward;
  b.units_leaving = 0.5;
  b.bucket_elements = 65536;
  EXPECT_EQ(diff(a, b),
            "the unit of nodes 0 to 1: parameters and gradients on the host, fetched before node 0 "
            "in forward and 1 in backward -> parameters and gradients on the host, fetched before "
            "node 0 in forward and 3 in backward\n"
            "the unit of nodes 2 to 3: on the device -> parameters on the host, fetched before "
            "node 2 in forward and 3 in backward, which reads no parameter\n"
            "the unit of nodes 4 to 5: parameters and gradients on the host, fetched before node 4 "
            "in forward and 5 in backward -> parameters and gradients on the host, fetched before "
            "node 4 in forward with all that backward needs and 5 in backward, on the device "
            "between them\n"
            "update: end -> backward\n"
            "units leaving: 1 -> 0.5\n"
            "elements of a bucket of state: as usual -> 65536\n");
  EXPECT_EQ(diff(b, b), "");
  Plan other = a;
  other.units[0].parameters = {7, 9};
  EXPECT_EQ(diff(a, other), "the unit of nodes 0 to 1: parameter 0 -> parameters 7, 9\n");
  EXPECT_TRUE(diff({}, a).starts_with("the unit of nodes 0 to 1: on the device -> "));
  EXPECT_EQ(diff(a, {.optimizer_state = OptimizerState::streamed}).find("nodes 2 to 3"),
            std::string::npos);
}

// The spans of a step, in the order in which they are enqueued.
class LinkLimit : public ::testing::Test {
 protected:
  void kernel(const char* task, double seconds, const char* op = "linear") {
    add(TraceLane::compute, Activity::kernel, {.task = task, .op = op, .node = op ? 3 : -1},
        seconds);
  }
  void home(TraceLane lane, double seconds) {
    add(lane, Activity::copy, {.task = "parameters in"}, seconds);
  }
  void value(TraceLane lane, double seconds) {
    add(lane, Activity::copy, {.task = "gelu", .node = 9}, seconds);
  }
  double growth() const { return growth_that_hides_homes(spans_); }

  static constexpr TraceLane in = TraceLane::copy_in, out = TraceLane::copy_out;

 private:
  void add(TraceLane lane, Activity activity, const TraceContext& context, double seconds) {
    spans_.push_back({.lane = lane, .activity = activity, .context = context, .end = seconds});
  }
  std::vector<TraceSpan> spans_;
};

TEST_F(LinkLimit, IsThatOfTheSlowestPassAndDirection) {
  home(in, 3);
  kernel("forward", 2);  // 1.5
  home(in, 4);           // for backward, before its first kernel
  kernel("backward", 4);
  home(in, 1);
  kernel("backward", 1);
  home(out, 10);  // 2
  EXPECT_DOUBLE_EQ(growth(), 2);
}

TEST_F(LinkLimit, CountsTheOptimizersCopiesForNoPass) {
  home(in, 1);
  kernel("forward", 2);
  kernel("backward", 4);
  kernel("optimizer", 1, nullptr);
  home(in, 100);
  home(out, 100);
  kernel("optimizer", 1, nullptr);
  home(in, 8);  // of the next micro-batch
  kernel("forward", 2);
  EXPECT_DOUBLE_EQ(growth(), 4);
}

TEST_F(LinkLimit, LeavesTheLinkToValuesAndHidesUpdatesInBackward) {
  value(out, 1);
  home(in, 1);
  kernel("forward", 2);
  value(in, 1);
  home(in, 5);
  kernel("backward", 3);
  kernel("update", 1, nullptr);
  EXPECT_DOUBLE_EQ(growth(), 2) << "(5 - 1) / (3 - 1)";
}

TEST_F(LinkLimit, IsNoNumberOfRowsIfValuesTakeLonger) {
  home(in, 1);
  value(in, 3);
  kernel("forward", 2);
  EXPECT_EQ(growth(), std::numeric_limits<double>::infinity());
}

TEST_F(LinkLimit, IsNoneWithoutHomes) {
  value(in, 3);
  kernel("forward", 2);
  EXPECT_EQ(growth(), 0);
}

}  // namespace
}  // namespace spool::testing
