#include "spool/models/training/run/evaluation_history.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/json.h"

namespace spool {
namespace {

using nlohmann::json;
using Point = EvaluationHistory::Point;

json to_json(const Point& point) {
  // JSON has no infinite or nan numbers.
  return {{"step", point.step},
          {"val_loss", std::isfinite(point.loss) ? json(point.loss) : json()}};
}

Point point(const JsonField& stored, int64_t max_steps) {
  const JsonField loss = stored.member("val_loss");
  return {.step = stored.member("step").integer<int64_t>(0, max_steps),
          .loss = loss.is_null() ? NAN : loss.number()};
}

}  // namespace

bool EvaluationHistory::add(const Point& point) {
  last = point;
  const bool is_best = std::isfinite(point.loss) && (!best || point.loss < best->loss);
  if (is_best) best = point;
  since_best = is_best ? 0 : since_best + 1;
  return is_best;
}

json to_json(const EvaluationHistory& history) {
  json all{{"since_best", history.since_best}};
  if (history.last) all["last"] = to_json(*history.last);
  if (history.best) all["best"] = to_json(*history.best);
  return all;
}

EvaluationHistory evaluation_history_from_json(const JsonField& stored, int64_t steps_done) {
  const Point last = point(stored.member("last"), steps_done);
  // There is at most one evaluation after each step.
  EvaluationHistory history{
      .last = last, .since_best = stored.member("since_best").integer<int64_t>(0, last.step)};
  if (const auto best = stored.find("best")) {
    history.best = point(*best, last.step);
    best->member("val_loss").expect(std::isfinite(history.best->loss), "is no number");
  }
  return history;
}

}  // namespace spool
