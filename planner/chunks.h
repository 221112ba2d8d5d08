#pragma once

// Plans that cut ops into chunks of a given size.

#include "spool/autograd/tape.h"

namespace spool {

// Cuts every node of the tape that allows it into chunks of at most `rows` rows.
Plan chunk_rows(const Tape&, int64_t rows);

}  // namespace spool
