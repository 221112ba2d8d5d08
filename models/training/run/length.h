#pragma once

// The length of a run that reads examples: known when its data is open.

#include <string>

#include "spool/models/training/run/data.h"

namespace spool {

// Checks the configuration as far as it does not depend on a length that is not known yet.
void validate_before_data(const RunOptions&);

// Takes as many steps as the epochs take, of which there are 3 if neither is given, and the warm-up
// that follows from them.  Throws if a run that resumes would become shorter.
void settle_length(RunOptions&, const RunData&);

// Says what the epochs are, and what would make more steps of few; empty: the run has none.
std::string describe_length(const RunOptions&);

}  // namespace spool
