// Public: one of the headers of docs/public-headers.md.
#pragma once

// Runs the ranks of one process, each on a thread of its own.

#include <functional>
#include <memory>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

// body(r) for each rank, with its communicator, rank 0 on the calling thread; returns when all have
// returned.  If one throws, the others' exchanges throw, too; then the first error is thrown, which
// names the rank if it is not 0.
void run_ranks(int ranks, const std::function<void(const std::shared_ptr<Communicator>&)>& body);

}  // namespace spool
