#pragma once

#include <vector>

#include "spool/autograd/parameters.h"
#include "spool/models/steps/step.h"

namespace spool {

// Throws an error that names two ranks and the first thing that differs if the ranks of a stream,
// all of which call it, would not come to the same exchanges: ranks on GPUs would wait for one
// another for ever.  In a rehearsal nothing differs.
void check_same_steps(const std::vector<Parameter*>&, const StepConfig&, const StepPlans&, Stream&);

}  // namespace spool
