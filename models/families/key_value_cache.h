#pragma once

// The keys and values of the tokens that a model has read, so that only those of later tokens are
// computed.

#include <span>
#include <vector>

#include "spool/autograd/ops.h"

namespace spool {

class KeyValueCache {
 public:
  // An empty cache; keys and values of each layer are (B, Hkv, P, D), for at most P tokens.
  KeyValueCache(int64_t layers, const Shape& each, DType, Stream&);
  // The same of ranks that share it, each of which has a part of each layer's keys and values.
  // Without parts it has no memory: ops on it can be recorded, not run.
  KeyValueCache(const Spec& each, const std::vector<Shape>& parts, Stream&);

  int64_t length() const { return length_; }  // tokens
  int64_t capacity() const { return each_.shape[2]; }

  // Layer i, positioned after the cached tokens.
  KeyValueLayer layer(size_t i) const;
  // The same memory, with a token added at `place`, i32 (1), which is below `rows`: for work that
  // is captured once and replayed at other places.
  KeyValueCache placed(const Tensor& place, int64_t rows) const;
  // Call it after every layer has stored the keys and values of `tokens` more tokens.
  void advance(int64_t tokens);
  void clear();

  int64_t rows() const { return rows_; }
  // Continues with these rows only, in ascending order, until it is cleared.
  void keep_rows(std::span<const int64_t> rows);

 private:
  void add_layer(const Shape& own, Stream&);

  Spec each_;
  bool is_shared_ = false;
  std::vector<KeyValueLayer> layers_ = {};
  int64_t length_ = 0, rows_ = 0;
};

}  // namespace spool
