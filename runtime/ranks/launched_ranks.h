#pragma once

// The ranks that a launcher started, joined.

#include <memory>
#include <string>

#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/launcher.h"

namespace spool {

struct JoinedRanks {
  std::shared_ptr<Communicator> own;
  std::string words;     // "4 ranks by torchrun"
  std::string exchange;  // by which they exchange: "sockets"
};

JoinedRanks join_ranks(const LaunchedRank&, const MeetingPlace&, const MeetingPatience& = {});

}  // namespace spool
