#include "spool/models/families/key_value_cache.h"

#include <iterator>

#include "spool/kernels/copy.h"

namespace spool {

KeyValueCache::KeyValueCache(int64_t layers, const Shape& each, DType dtype, Stream& stream) {
  check(layers > 0 && each.rank() == 4, "key-value cache: ", layers, " layers of ", each,
        "; there must be at least one, of shape (B, heads, positions, D)");
  const Spec spec{each, dtype};
  rows_ = each[0];
  for (int64_t i = 0; i < layers; ++i) {
    layers_.push_back({.keys = Tensor(spec, stream, {.name = "cached_keys"}),
                       .values = Tensor(spec, stream, {.name = "cached_values"})});
  }
}

KeyValueLayer KeyValueCache::layer(size_t i) const {
  check(i < layers_.size(), "key-value cache: layer ", i, " of ", layers_.size());
  const Range rows{0, rows_};
  return {.keys = layers_[i].keys.slice(rows),
          .values = layers_[i].values.slice(rows),
          .position = length_,
          .place = layers_[i].place};
}

KeyValueCache KeyValueCache::placed(const Tensor& place, int64_t rows) const {
  KeyValueCache all = *this;
  for (KeyValueLayer& layer : all.layers_) layer.place = place;
  all.length_ = rows - 1;
  return all;
}

void KeyValueCache::advance(int64_t tokens) {
  check(tokens >= 0 && length_ + tokens <= capacity(), "key-value cache: ", tokens,
        " tokens after ", length_, " exceed its capacity of ", capacity());
  length_ += tokens;
}

void KeyValueCache::clear() {
  length_ = 0;
  rows_ = layers_.front().keys.shape()[0];
}

namespace {

void move_row(const Tensor& cache, int64_t from, int64_t to) {
  const Tensor out = cache.slice({to, to + 1}), in = cache.slice({from, from + 1});
  launch(StridedCopy{.out = out, .in = in, .rows = 1, .width = in.numel()}, cache.stream());
}

}  // namespace

void KeyValueCache::keep_rows(std::span<const int64_t> rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    check(rows[i] >= 0 && rows[i] < rows_ && (i == 0 || rows[i] > rows[i - 1]),
          "key-value cache: row ", rows[i], " of ", rows_, " to keep; they must ascend");
  }
  for (const KeyValueLayer& layer : layers_) {
    for (size_t to = 0; to < rows.size(); ++to) {
      if (rows[to] == static_cast<int64_t>(to)) continue;
      move_row(layer.keys, rows[to], static_cast<int64_t>(to));
      move_row(layer.values, rows[to], static_cast<int64_t>(to));
    }
  }
  rows_ = std::ssize(rows);
}

}  // namespace spool
