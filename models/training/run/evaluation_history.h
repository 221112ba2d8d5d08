#pragma once

// The evaluations of a run as far as they decide which checkpoints are kept and when the run ends.
// Checkpoints store it as JSON.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace spool {

class JsonField;

struct EvaluationHistory {
  struct Point {
    int64_t step = 0;  // number of steps done
    double loss = 0;   // nats
    bool operator==(const Point&) const = default;
  };
  std::optional<Point> last = {}, best = {};
  int64_t since_best = 0;  // number of evaluations

  // Adds an evaluation; returns whether it is the best so far.  NaN never is.
  bool add(const Point&);
  // Whether the last evaluation was after this many steps.
  bool ends_at(int64_t steps_done) const { return last && last->step == steps_done; }
  bool operator==(const EvaluationHistory&) const = default;
};

nlohmann::json to_json(const EvaluationHistory&);
// The history of a run that has done this many steps; throws if it cannot be.
EvaluationHistory evaluation_history_from_json(const JsonField&, int64_t steps_done);

}  // namespace spool
