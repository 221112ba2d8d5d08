// Public: one of the headers of docs/public-headers.md.
#pragma once

// The ranks of a program: threads of one process, or processes of a launcher.

#include <functional>
#include <memory>

#include "spool/runtime/device.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {

// body(r) for each rank, with its communicator, rank 0 on the calling thread; returns when all have
// returned.  If one throws, the others' exchanges throw, too; then the first error is thrown, which
// names the rank if it is not 0.
void run_ranks(int ranks, const std::function<void(const std::shared_ptr<Communicator>&)>& body);

// This process as one of the ranks that torchrun, mpirun or srun started, by their variables
// (docs/ranks.md); null where there is no launcher, or it started one process.  Waits for the
// others.  If a rank throws while it has this, or disappears, the others' exchanges throw
// RankEnded.
std::shared_ptr<Communicator> ranks_of_launcher();

// The GPUs of this machine, without a context on any; 0 in a build without CUDA.
int gpu_count();
// Throws if so many ranks of one machine are more than its GPUs.
void check_gpus(int ranks, int gpus);
// The same ranks, whose exchanges are of this device's memory: on a GPU, of which each rank has one
// of its own, by NCCL.  All ranks call it.  Throws where they have no NCCL, or share a GPU.
std::shared_ptr<Communicator> on_device(std::shared_ptr<Communicator>, Device);
// The GPU of this rank: the one of its number among the ranks of its machine, or the only one that
// it sees.  All ranks call it.  Throws where it has none, or that of another.
Device gpu_of_rank(Communicator&);

}  // namespace spool
