#pragma once

// Plans made by a rule rather than by a search.

#include "spool/autograd/tape.h"

namespace spool {

// Every node of the tape that can be cut, cut into chunks of at most this many rows.
Plan chunk_rows(const Tape&, int64_t rows);

}  // namespace spool
