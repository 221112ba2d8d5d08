#pragma once

// The evaluations of a training run: those between its steps, whose history decides what is kept
// and when the run ends, and the one after the last step.

#include <functional>
#include <optional>
#include <string>

#include "spool/models/training/run/checkpoints.h"

namespace spool {

class Evaluations {
 public:
  // All outlive this.  An evaluation is cut short if stop() is true meanwhile.
  Evaluations(const RunSetup&, RunState&, Checkpoints&, const std::function<bool()>& stop);

  // Whether one is due between this step and the next.
  bool is_due(int64_t done) const;
  // Evaluates after the steps done, as part of the history.  Returns whether the loss is the best
  // so far; not if it is cut short.
  bool evaluate();
  bool is_done() const { return state_.evaluations.ends_at(state_.done); }
  // Makes up for the one that the run that is resumed owes.  Returns false if it is cut short.
  bool make_up();
  bool is_out_of_patience() const;
  // "after step 400: in 3 evaluations no validation loss was better than ..."
  std::string describe_lost_patience() const;

  // Evaluates the data that the options choose for the end of the run, and tells its loss.  Returns
  // false if it is cut short.
  bool evaluate_at_the_end();

 private:
  std::optional<EvaluationNumbers> evaluate(const RowSource&);

  const RunSetup& run_;
  RunState& state_;
  Checkpoints& checkpoints_;
  const std::function<bool()>& stop_;
};

}  // namespace spool
