#include "spool/models/families/key_value_cache.h"

namespace spool {

KeyValueCache::KeyValueCache(int64_t layers, const Shape& each, DType dtype, Stream& stream) {
  check(layers > 0 && each.rank() == 4, "key-value cache: ", layers, " layers of ", each,
        "; there must be at least one, of shape (B, heads, positions, D)");
  const Spec spec{each, dtype};
  for (int64_t i = 0; i < layers; ++i) {
    layers_.push_back({.keys = Tensor(spec, stream, {.name = "cached_keys"}),
                       .values = Tensor(spec, stream, {.name = "cached_values"})});
  }
}

KeyValueLayer KeyValueCache::layer(size_t i) const {
  check(i < layers_.size(), "key-value cache: layer ", i, " of ", layers_.size());
  KeyValueLayer next = layers_[i];
  next.position = length_;
  return next;
}

void KeyValueCache::advance(int64_t tokens) {
  check(tokens >= 0 && length_ + tokens <= capacity(), "key-value cache: ", tokens,
        " tokens after ", length_, " exceed its capacity of ", capacity());
  length_ += tokens;
}

}  // namespace spool
