#pragma once

// Refuses a run that does not fit into the available memory, and says what would fit.

#include "spool/models/steps/run_request.h"

namespace spool {

// An Error (memory) if the foretold peak exceeds the budget or the device's memory, or if the host
// has too little for what is offloaded; nothing if the run fits.  The error says which number of
// threads of a cpu, or which batch, would fit.
std::optional<Error> refuse(const PlannedSteps&, const RunSteps&, const RunRequest&,
                            const Machine&);

// Where the run reaches its peak, in words: "the backward of linear (node 37)".
std::string place_of_peak(const PlannedSteps&, const StepDescription&, const Machine&);

}  // namespace spool
