#pragma once

namespace spool {

class Parameters;

// Throws an error that names a rank and a parameter if the ranks of the parameters' stream, all of
// which call it between steps, no longer have the same values, or the same of a part that several
// have; without other ranks it does nothing.
// Takes at most 8 KiB of the device.  In a rehearsal nothing differs.
void check_same_parameters(const Parameters&);

}  // namespace spool
