#pragma once

// Plans that cut ops into chunks of a given size.

#include "spool/autograd/tape.h"

namespace spool {

// A plan that cuts every node of the tape that can be cut into chunks of at most `rows` rows.
Plan chunk_rows(const Tape&, int64_t rows);

}  // namespace spool
