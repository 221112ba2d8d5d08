#pragma once

// The keys and values of a text that a model has read, so that what follows needs only its own.

#include <vector>

#include "spool/autograd/ops.h"

namespace spool {

class KeyValueCache {
 public:
  // Of so many attentions, each (B, Hkv, P, D), for texts of P tokens at most; empty.
  KeyValueCache(int64_t layers, const Shape& each, DType, Stream&);

  int64_t length() const { return length_; }  // tokens
  int64_t capacity() const { return layers_.front().keys.shape()[2]; }

  // Where the next tokens go.
  KeyValueLayer layer(size_t i) const;
  // So many have gone into every layer.
  void advance(int64_t tokens);
  void clear() { length_ = 0; }

 private:
  std::vector<KeyValueLayer> layers_;
  int64_t length_ = 0;
};

}  // namespace spool
