#pragma once

// The evaluations of a training run: those between its steps, whose history decides what is kept
// and when the run ends, and the one after the last step.

#include <functional>
#include <optional>
#include <string>

#include "spool/models/training/run/checkpoints.h"

namespace spool {

struct Evaluations {
  const RunSetup& run;
  RunState& state;
  Checkpoints& checkpoints;
  const std::function<bool()>& stop;  // an evaluation is cut short if it is true meanwhile

  // Whether one is due between this step and the next.
  bool is_due(int64_t done) const;
  // Evaluates after the steps done, as part of the history.  Returns whether the loss is the best
  // so far; not if it is cut short.
  bool evaluate();
  bool is_done() const { return state.evaluations.ends_at(state.done); }
  // Makes up for the one that the run that is resumed owes.  Returns false if it is cut short.
  bool make_up();
  bool is_out_of_patience() const;
  // "after step 400: in 3 evaluations no validation loss was better than ..."
  std::string describe_lost_patience() const;

  // Evaluates the data that the options choose for the end of the run, and tells its loss.  Returns
  // false if it is cut short.
  bool evaluate_at_the_end();

  // Evaluates these rows and tells their loss; nothing if it is cut short.
  std::optional<EvaluationNumbers> evaluate(const RowSource&);

 private:
  bool are_to_stop(bool own) const;
  std::optional<double> mean_loss(const RowSource&);
};

}  // namespace spool
