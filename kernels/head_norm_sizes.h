#pragma once

// Division of head norm backward on cuda into groups of tokens, a block each, which depend only on
// extents.  Each group has its partial sums of dquery and then of dkey in the workspace.

#include <algorithm>
#include <cstdint>

#include "spool/runtime/integer.h"

namespace spool::cuda {

struct HeadNormGroups {
  int64_t tokens = 1, count = 0;

  explicit HeadNormGroups(int64_t N) {
    constexpr int64_t max_groups = 132 * 4, min_tokens = 4;
    tokens = std::max(spool::ceil_div(N, max_groups), min_tokens);
    count = spool::ceil_div(N, tokens);
  }
};

}  // namespace spool::cuda
