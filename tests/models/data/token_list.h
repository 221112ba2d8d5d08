#pragma once

// A token source in memory that counts how often each token is read.

#include <algorithm>
#include <utility>

#include "spool/models/data/batches.h"
#include "spool/runtime/check.h"

namespace spool::testing {

class TokenList : public TokenSource {
 public:
  explicit TokenList(std::vector<int32_t> all) : reads(all.size()), all_(std::move(all)) {}
  std::string name() const override { return "memory"; }
  int64_t size() const override { return static_cast<int64_t>(all_.size()); }
  void read(int64_t begin, std::span<int32_t> out) const override {
    const auto count = static_cast<int64_t>(out.size());
    check(0 <= begin && begin + count <= size(), "out of bounds");
    std::copy_n(all_.begin() + begin, count, out.begin());
    for (int64_t i = begin; i < begin + count; ++i) ++reads[static_cast<size_t>(i)];
  }

  mutable std::vector<int> reads;  // of each token

 private:
  std::vector<int32_t> all_;
};

// Token i is i, modulo the vocabulary.
inline std::shared_ptr<const TokenList> counting(int64_t size, int64_t vocabulary = INT32_MAX) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(static_cast<int32_t>(i % vocabulary));
  return std::make_shared<TokenList>(std::move(all));
}

}  // namespace spool::testing
