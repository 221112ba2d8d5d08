#pragma once

// Ranks that mpirun started, which exchange bytes by MPI.  The program is not linked with it: a
// module, spool_mpi.so (runtime/ranks/mpi), is, and is opened here.

#include <memory>
#include <string>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

// Begins MPI in this process, which the launcher says is one of `size` ranks.  Null, with a reason,
// where there is no module or MPI counts the ranks otherwise.  MPI ends with the last pointer if
// all is well: no rank failed, and no exception is on its way; else when the process exits, and
// then it ends all ranks, with exit code 1.
std::shared_ptr<Communicator> ranks_of_mpi(int size, std::string* why_not);

// The library that the module is linked with: "Open MPI v4.1.4"; or why there is none.
std::string mpi_in_words();

}  // namespace spool
