#pragma once

// Ranks that are processes of one machine: a Unix connection for each pair of them.

#include <memory>

#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/meeting.h"

namespace spool {

// Meets the others.  Ranks on several machines are refused: those need MPI.
std::shared_ptr<Communicator> ranks_of_sockets(const MeetingPlace&, int rank, int size,
                                               const MeetingPatience& = {});

}  // namespace spool
