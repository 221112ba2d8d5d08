#pragma once

// Heads packed in a dimension, (H + 2 Hkv) D long: all queries, all keys, all values.  A part of an
// op has fewer heads, as many as the length of its rows says, and all of a group: a key head and
// the queries that share it.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "spool/autograd/attributes.h"
#include "spool/kernels/attention.h"

namespace spool {

class PackedHeads {
 public:
  // Of rows of this length; what does not fit is for infer() to refuse.
  PackedHeads(Heads all, int64_t row)
      : all_(all),
        fits_(total() > 0 && row % total() == 0 && row > 0),
        head_(fits_ ? row / total() : 1) {}

  std::string attributes() const {
    return in_words({{"query heads", all_.query}, {"key heads", all_.key}});
  }
  // 1 / sqrt(D), of scores.
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_)); }

  // The heads in rows of this length: some groups, or all if it is not theirs.
  Heads in(int64_t row) const {
    const int64_t each = (group() + 2) * head_;
    const int64_t groups = row / each;
    if (!fits_ || row % each != 0 || groups >= all_.key || groups == 0) return all_;
    return {.query = groups * group(), .key = groups};
  }

  // Queries that share a key head.
  int64_t group() const { return std::max<int64_t>(all_.key > 0 ? all_.query / all_.key : 0, 1); }
  // Dimensions in index notation, of which h counts groups: "(128h+64h+64h)", "(128h)", "(2h)".
  std::string packed() const { return fmt::format("({}h+{}h+{}h)", group() * head_, head_, head_); }
  std::string queries() const { return fmt::format("({}h)", group() * head_); }
  std::string of_each_query() const { return fmt::format("({}h)", group()); }

 private:
  int64_t total() const { return all_.query + 2 * all_.key; }

  Heads all_;
  bool fits_;  // the row has all heads, of one size
  int64_t head_;
};

}  // namespace spool
