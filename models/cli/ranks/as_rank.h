#pragma once

// This process as one of the ranks that a launcher, or this program itself, started.

#include <functional>
#include <memory>
#include <string>

#include "spool/runtime/ranks/launched_ranks.h"
#include "spool/runtime/ranks/launcher.h"

namespace spool {

struct RankWork {
  // Returns the exit code.
  std::function<int(const std::shared_ptr<Communicator>&)> run;
  // On rank 0, when all have met.
  std::function<void(const JoinedRanks&)> say;
  // What is left when another rank was lost, for the sentence that says so.
  std::function<std::string()> is_left;
};

// Waits for the other ranks, and works with them.  Of an error one rank tells, which is named in it
// if it is not rank 0; on the others this returns 1.
int run_as_rank(const LaunchedRank&, const MeetingPlace&, const RankWork&);

}  // namespace spool
