#pragma once

// What a command does where this process is one of several ranks: those of a launcher, or processes
// that the program started.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "spool/models/training/run_options.h"
#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/launched_ranks.h"
#include "spool/runtime/ranks/launcher.h"

namespace spool {

// Throws unless the options and the launcher, if there is one, say the same ranks.
void check_launch(const RunOptions&, const std::optional<LaunchedRank>&);

// Where the run is, as --device says; ranks on GPUs have one each, which each finds by itself, so
// that this process makes no context.
Device device_of(const RunOptions&);
// Whether the ranks are processes that this one is to start, as those with GPUs are.  Throws if
// there are fewer GPUs.
bool starts_processes(const RunOptions&);

// "4 ranks by torchrun, which exchange by sockets"
std::string in_words(const JoinedRanks&, bool has_gpus);

struct RankWork {
  // With the others; returns the program's exit code.
  std::function<int(const std::shared_ptr<Communicator>&)> run;
  // Of the work, for a sentence that says that ranks are lost.
  std::function<std::string()> is_left;
  // On rank 0, called with who has joined, and by what they exchange.
  std::function<void(const JoinedRanks&)> say = [](const JoinedRanks&) {};
};

// Joins the other ranks, where `meet` or else the launcher says, and does the work that `prepare`
// returns; if that throws instead, one of the ranks says why.  Returns the exit code.
int run_launched(const LaunchedRank&, const std::string& meet,
                 const std::function<RankWork()>& prepare);

}  // namespace spool
