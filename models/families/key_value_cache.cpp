#include "spool/models/families/key_value_cache.h"

#include <iterator>

#include "spool/kernels/copy.h"

namespace spool {

KeyValueCache::KeyValueCache(int64_t layers, const Shape& each, DType dtype, Stream& stream)
    : each_{each, dtype} {
  check(layers > 0 && each.rank() == 4, "key-value cache: ", layers, " layers of ", each,
        "; there must be at least one, of shape (B, heads, positions, D)");
  rows_ = each[0];
  for (int64_t i = 0; i < layers; ++i) add_layer(each, stream);
}

KeyValueCache::KeyValueCache(const Spec& each, const std::vector<Shape>& parts, Stream& stream)
    : each_(each), is_shared_(true), rows_(each.shape[0]) {
  for (const Shape& own : parts) add_layer(own, stream);
}

void KeyValueCache::add_layer(const Shape& own, Stream& stream) {
  const Spec spec{own, each_.dtype};
  layers_.push_back({.keys = Tensor(spec, stream, {.name = "cached_keys"}),
                     .values = Tensor(spec, stream, {.name = "cached_values"})});
}

KeyValueLayer KeyValueCache::layer(size_t i) const {
  const bool is_recorded = is_shared_ && layers_.empty();
  check(is_recorded || i < layers_.size(), "key-value cache: layer ", i, " of ", layers_.size());
  KeyValueLayer layer{.position = length_};
  if (is_shared_) {
    layer.whole = each_;
    layer.whole.shape = each_.shape.with(0, rows_);
  }
  if (is_recorded) return layer;
  const Range rows{0, rows_};
  layer.keys = layers_[i].keys.slice(rows);
  layer.values = layers_[i].values.slice(rows);
  layer.place = layers_[i].place;
  return layer;
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
  rows_ = each_.shape[0];
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
