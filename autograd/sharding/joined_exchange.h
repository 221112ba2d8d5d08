#pragma once

// What the parts of an op on ranks exchange along an index that the op joins (*).

#include <string>
#include <vector>

#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/sharding/rank_group.h"
#include "spool/autograd/sharding/strategies.h"

namespace spool {

class JoinedExchange final : public PartExchange {
 public:
  // The ranks outlive it.  `op`, for the names of its exchanges: "linear_cross_entropy (node 60)".
  JoinedExchange(const Strategy&, const MeshRanks&, const std::string& op);
  void all_gather(char index, const View& own, const View& all, Stream&) override;

 private:
  CutIndices axes_;
  const MeshRanks& ranks_;
  std::vector<Name> names_ = {};  // by axis
};

}  // namespace spool
