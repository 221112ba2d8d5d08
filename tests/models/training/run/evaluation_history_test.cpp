#include "spool/models/training/run/evaluation_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/json.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

using nlohmann::json;
using testing::expect_error;

EvaluationHistory read(const json& stored) {
  return evaluation_history_from_json(JsonField(stored, "run.json"), /*steps_done=*/10);
}

json with(const char* path, const json& value) {
  EvaluationHistory history;
  history.add({.step = 4, .loss = 2});
  history.add({.step = 8, .loss = 3});
  json stored = to_json(history);
  stored[json::json_pointer(path)] = value;
  return stored;
}

TEST(EvaluationHistory, IsReadAsItWasWritten) {
  EvaluationHistory history;
  for (const double loss : {3.0, 2.0, 2.5, std::numeric_limits<double>::infinity()}) {
    history.add({.step = history.last ? history.last->step + 2 : 2, .loss = loss});
    const EvaluationHistory again = read(json::parse(to_json(history).dump()));
    EXPECT_EQ(again.since_best, history.since_best);
    EXPECT_EQ(again.best, history.best);
    EXPECT_EQ(again.last->step, history.last->step);
    EXPECT_EQ(std::isfinite(again.last->loss), std::isfinite(history.last->loss));
  }
  EXPECT_EQ(history.best, (EvaluationHistory::Point{.step = 4, .loss = 2}));
  EXPECT_EQ(history.since_best, 2);
  EXPECT_TRUE(history.ends_at(8));
  EXPECT_FALSE(history.ends_at(6));
  EXPECT_FALSE(EvaluationHistory().ends_at(0));
}

TEST(EvaluationHistory, RefusesWhatNoRunCanHave) {
  const auto refuses = [](const json& stored, std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::file, words, [&] { read(stored); });
  };
  constexpr auto max = std::numeric_limits<int64_t>::max();
  refuses({{"since_best", 5}}, {"field last is missing"});
  refuses(json::array(), {"run.json", "not a JSON object"});
  for (const json& count : {json(-1), json(9), json(max), json(1.5), json()}) {
    refuses(with("/since_best", count), {"field since_best", "0 to 8"});
  }
  for (const json& step : {json(-1), json(11), json(max), json("8")}) {
    refuses(with("/last/step", step), {"field last.step", "0 to 10"});
  }
  refuses(with("/best/step", 9), {"field best.step", "0 to 8"});
  refuses(with("/best/val_loss", json()), {"field best.val_loss", "is no number"});
  refuses(with("/best/val_loss", "low"), {"field best.val_loss", "low"});
  refuses(with("/last", 8), {"field last: 8"});
}

}  // namespace
}  // namespace spool
