#pragma once

// Plans that cut ops into chunks of a given size.

#include "spool/autograd/program.h"

namespace spool {

// Cuts every node of the program that allows it into chunks of at most `rows` rows.
Plan chunk_rows(const Program&, int64_t rows);

}  // namespace spool
