#pragma once

// The loop of a training run.

#include <functional>

#include "spool/models/training/run/setup.h"

namespace spool {

// Trains to the last step, or until patience is lost, or until stop() is true after a step, and
// writes a checkpoint of the step it reached; a dry run does nothing.  A stop that comes later cuts
// the final evaluation short.  Returns whether stop(), or that of another rank, ended it or cut an
// evaluation short.  Throws Error (numeric) if the loss or a gradient is not
// finite, and Error (file) if the data cannot be read any more, after a checkpoint of what was
// trained.
bool train(const RunSetup&, const std::function<bool()>& stop);

}  // namespace spool
