#pragma once

// Ranks with a GPU each.  What they exchange on their devices goes through NCCL, which moves bytes
// and adds nothing.  What all of them exchange is in pieces (ranks/packing.h), which a kernel
// packs: with memory that all ranks share as a window, copy engines move them, no multiprocessor
// (NVIDIA, NCCL user guide, "Device memory windows" and "Zero-CTA").  Messages between some of them
// are sent and received in one group of calls, by multiprocessors.  All else goes through another
// communicator, of the host.
//
// A thread watches (ranks/watchdog.h): when this rank or another ends, or one does not come to an
// exchange, or NCCL reports an error, it aborts what waits on the device.  If the host then does
// not let go of the ranks within seconds, it says why, and ends the process.

#include <memory>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

// Of the device, for which it makes a context.  Throws where NCCL cannot be used, or where two
// ranks have one GPU.
std::shared_ptr<Communicator> ranks_of_nccl(std::shared_ptr<Communicator> host, int device);

}  // namespace spool
