#pragma once

// The Unix connections between each pair of ranks that are processes of one machine.

#include <vector>

#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/descriptor.h"
#include "spool/runtime/ranks/meeting.h"

namespace spool {

// By rank; this one's are empty.
struct Connections {
  std::vector<Descriptor> data, watch;
};

// Meets the others.  Ranks on several machines are refused: those need MPI.
Connections connect_ranks(const MeetingPlace&, int rank, int size, const MeetingPatience&);

}  // namespace spool
