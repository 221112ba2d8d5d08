#pragma once

// The evaluations of a run between its steps, as far as they decide what is kept and when the run
// ends.  Its checkpoints store it as JSON.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace spool {

class JsonField;

struct EvaluationHistory {
  struct Point {
    int64_t step = 0;  // steps done before it
    double loss = 0;   // nats
    bool operator==(const Point&) const = default;
  };
  std::optional<Point> last = {}, best = {};
  int64_t since_best = 0;  // evaluations

  // Whether this one is the best so far; a loss that is not a number is not.
  bool add(const Point&);
  // Whether the last one was after that many steps.
  bool ends_at(int64_t steps_done) const { return last && last->step == steps_done; }
  bool operator==(const EvaluationHistory&) const = default;
};

nlohmann::json to_json(const EvaluationHistory&);
// Reads the history of a run that has done that many steps; throws if it cannot be one.
EvaluationHistory evaluation_history_from_json(const JsonField&, int64_t steps_done);

}  // namespace spool
