#pragma once

// The settings of where parameters live and when they are updated.

#include <string>

#include "spool/models/training/run_options.h"

namespace spool {

// Of device, host or an amount of memory: how many bytes of the parameters stay on the device;
// none: all.
std::optional<size_t> parameters_on_device(const std::string&);
std::string parameters_text(const RunOptions&);
void read_parameters(RunOptions&, const std::string&);
// Streams the state of parameters on the host, unless its place is given.  Throws an error that
// names the settings if those of homes and updates contradict others, which must be known: those of
// a run that resumes are the stored ones.
void settle_homes(RunOptions&);

}  // namespace spool
