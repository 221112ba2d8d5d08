#pragma once

// What a training step asks of a model: its parameters, and the loss of the batch that stands in
// its inputs.  An implementation keeps both at fixed addresses, so that a step can be captured and
// replayed.

#include <vector>

#include "spool/autograd/tape.h"

namespace spool {

class StepModel {
 public:
  StepModel() = default;
  virtual ~StepModel() = default;
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  // The same, in the same order, every time.
  virtual std::vector<Parameter*> parameters() = 0;

  // Runs the model on the tape: the mean loss over the valid targets of the inputs, one element.
  virtual Var loss(Tape&) = 0;

  // Uploads a valid batch of no meaning into the inputs, by the same copies as a real one: for
  // rehearsals, and for what runs before the first step.
  virtual void upload_placeholder() {}
};

}  // namespace spool
