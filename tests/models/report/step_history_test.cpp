#include "spool/models/report/step_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace spool {
namespace {

StepEntry step(int64_t n) {
  return {.step = n, .loss = 1.0 / static_cast<double>(n), .ms = 2.0, .tokens = 8 * n};
}

TEST(StepHistory, KeepsAllOfAShortRun) {
  StepHistory history(10);
  std::vector<StepEntry> all;
  for (int64_t n = 1; n <= 10; ++n) {
    history.add(step(n));
    all.push_back(step(n));
    EXPECT_EQ(history.entries(), all);
  }
}

TEST(StepHistory, AnEvaluationIsAPartOfItsStep) {
  StepHistory history;
  history.add(step(1));
  history.add({.step = 1, .val_loss = 7});
  StepEntry both = step(1);
  both.val_loss = 7;
  EXPECT_EQ(history.entries(), std::vector{both});
}

TEST(StepHistory, SpreadsWhatItKeepsEvenly) {
  for (const size_t max : {4, 7, 100}) {
    StepHistory history(max);
    for (int64_t n = 1; n <= 5000; ++n) {
      history.add(step(n));
      const auto entries = history.entries();
      ASSERT_LE(entries.size(), max);
      ASSERT_EQ(entries.front(), step(1));
      ASSERT_EQ(entries.back(), step(n));
    }
    const auto entries = history.entries();
    for (size_t i = 2; i + 1 < entries.size(); ++i) {
      EXPECT_EQ(entries[i].step - entries[i - 1].step, entries[2].step - entries[1].step);
    }
    EXPECT_GE(3 * entries.size(), max);
  }
}

TEST(StepHistory, KeepsEvaluationsBeforeSteps) {
  StepHistory history(100);
  size_t evaluations = 0;
  for (int64_t n = 1; n <= 4000; ++n) {
    history.add(step(n));
    if (n % 100 != 0) continue;
    history.add({.step = n, .val_loss = 0.5});
    ++evaluations;
  }
  size_t kept = 0;
  for (const StepEntry& e : history.entries()) kept += e.val_loss ? 1 : 0;
  EXPECT_EQ(kept, evaluations);
}

TEST(StepHistory, ThinsTooManyEvaluations) {
  StepHistory history(20);
  for (int64_t n = 1; n <= 1000; ++n) {
    history.add({.step = n, .loss = 1, .val_loss = 1});
    ASSERT_LE(history.entries().size(), 20U);
  }
  EXPECT_GE(history.entries().size(), 8U);
}

TEST(StepHistory, IsTheSameAsItsJson) {
  const std::vector<StepEntry> entries = {
      step(1), {.step = 2, .val_loss = 3.5}, {.step = 3, .tokens_per_s = 1e6}};
  EXPECT_EQ(step_entries(nlohmann::json::parse(to_json(entries).dump())), entries);
}

TEST(StepHistory, SkipsWhatIsNotAStep) {
  const auto read = [](const char* text) { return step_entries(nlohmann::json::parse(text)); };
  EXPECT_TRUE(read("{}").empty());
  EXPECT_TRUE(read(R"([1, null, "a", {}, {"step": 1.5}, {"step": "1"}])").empty());
  EXPECT_TRUE(read(R"([{"step": -1}, {"step": 9007199254740993}, {"step": 1e3}])").empty());
  for (const char* tokens : {"1e300", "18446744073709551615", "-1"}) {
    const std::string entry = R"([{"step": 1, "loss": "low", "ms": null, "tokens": )";
    EXPECT_EQ(read((entry + tokens + "}]").c_str()), std::vector{StepEntry{.step = 1}});
  }
}

}  // namespace
}  // namespace spool
