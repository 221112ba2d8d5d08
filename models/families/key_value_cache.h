#pragma once

// The keys and values of tokens that a model has read, so that it computes those of later tokens
// only.

#include <span>
#include <vector>

#include "spool/autograd/ops.h"

namespace spool {

class KeyValueCache {
 public:
  // Empty; keys and values of each layer are (B, Hkv, P, D), for at most P tokens.
  KeyValueCache(int64_t layers, const Shape& each, DType, Stream&);

  int64_t length() const { return length_; }  // tokens
  int64_t capacity() const { return layers_.front().keys.shape()[2]; }

  // Layer i, positioned behind the cached tokens.
  KeyValueLayer layer(size_t i) const;
  // Call after every layer has been given the keys and values of `tokens` more.
  void advance(int64_t tokens);
  void clear();

  int64_t rows() const { return rows_; }
  // Goes on with these rows, in ascending order, until it is cleared.
  void keep_rows(std::span<const int64_t> rows);

 private:
  std::vector<KeyValueLayer> layers_;
  int64_t length_ = 0, rows_ = 0;
};

}  // namespace spool
