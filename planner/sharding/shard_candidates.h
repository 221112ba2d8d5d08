#pragma once

// Ways to cut a program that are worth a rehearsal: the cheapest for at most eight prices of a
// byte, from next to nothing, where seconds alone count, to one for which few bytes count alone;
// the same for at most four if backward hides the sums of gradients; and those of the policies by
// hand.  Between two that differ a price is tried at which both cost the same: if there is a third
// on the convex hull of seconds and bytes between them, it is cheaper there.  [Everett,
// "Generalized Lagrange Multiplier Method", 1963]

#include <string>
#include <vector>

#include "spool/planner/sharding/shard_choice.h"

namespace spool {

struct ShardCandidate {
  // A policy's, or of what no policy finds "found 1", "found 2" and so on, by rising price of a
  // byte, those that hide sums after the others.
  std::string name = {};
  ShardChoice choice = {};
  bool hides_sums = false;  // found as if backward hid the sums of gradients
};

struct ShardCandidates {
  std::vector<ShardCandidate> all = {};
  struct Refused {
    std::string name = {}, why = {};
  };
  std::vector<Refused> refused = {};  // policies, and "found" where there are too many states
};

// The same on all ranks.  Throws, of the settings shard and mesh, if no op can be cut along some
// axis.
ShardCandidates shard_candidates(const Program&, const MeshAxes&, const MeshMachine&);

}  // namespace spool
