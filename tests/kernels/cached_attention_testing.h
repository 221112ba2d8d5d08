#pragma once

// Attention over a cache, on any device.

#include <optional>

#include "spool/kernels/cached_attention.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

// Attention of the tokens of qkv (B, n, ...) at a position of a text, over caches (B, Hkv, P, D).
inline Tensor attend(const Tensor& keys, const Tensor& values, const Tensor& qkv,
                     const Heads& heads, int64_t position, double scale, const Tensor& first = {},
                     const Tensor& place = {}) {
  const Shape shape{qkv.shape()[0], qkv.shape()[1], heads.query * keys.shape()[3]};
  Tensor y = unset(shape, qkv.dtype(), qkv.stream());
  launch(CachedAttention{.y = y,
                         .keys = keys,
                         .values = values,
                         .qkv = qkv,
                         .heads = heads,
                         .position = position,
                         .scale = scale,
                         .first = first,
                         .place = place},
         qkv.stream());
  return y;
}

// Texts of some lengths, padded at the left to the longest, are read in these steps, into caches of
// 60 rows; y of all their tokens, and of none of the padding.  With `alone`, each is read by
// itself.
class PaddedTexts {
 public:
  PaddedTexts(const std::vector<int64_t>& lengths, DType t, Stream& stream)
      : lengths_(lengths),
        longest_(*std::max_element(lengths.begin(), lengths.end())),
        type_(t),
        stream_(stream),
        found_(lengths.size()) {
    for (size_t b = 0; b < lengths.size(); ++b) {
      texts_.push_back(normal({longest_, 8 * D}, t, stream, 20 + b));
    }
  }

  Numbers read(const std::vector<int64_t>& steps, bool alone) {
    for (Numbers& text : found_) text.clear();
    if (!alone) read_rows(0, lengths_.size(), steps, 0);
    for (size_t b = 0; alone && b < lengths_.size(); ++b) {
      read_rows(b, 1, steps, longest_ - lengths_[b]);
    }
    Numbers all;
    for (const Numbers& text : found_) all.insert(all.end(), text.begin(), text.end());
    return all;
  }

 private:
  static constexpr int64_t D = 8, P = 60;
  static constexpr Heads heads{.query = 4, .key = 2};

  // Reads these texts without their first `skipped` tokens.
  void read_rows(size_t first_text, size_t count, const std::vector<int64_t>& steps,
                 int64_t skipped) {
    const auto B = static_cast<int64_t>(count);
    const Tensor keys = unset({B, heads.key, P, D}, type_, stream_);
    const Tensor all_values = unset({B, heads.key, P, D}, type_, stream_);
    std::vector<int32_t> first;
    for (size_t b = first_text; b < first_text + count; ++b) {
      first.push_back(static_cast<int32_t>(longest_ - lengths_[b] - skipped));
    }
    int64_t token = 0;
    for (const int64_t step : steps) {
      const Range rows{std::max(token, skipped), std::max(token + step, skipped)};
      token += step;
      if (rows.size() == 0) continue;
      const Tensor qkv({{B, rows.size(), 8 * D}, type_}, stream_);
      for (int64_t b = 0; b < B; ++b) {
        const Tensor& text = texts_[first_text + static_cast<size_t>(b)];
        launch(Add{.out = qkv.slice({b, b + 1}), .a = text.slice(rows)}, stream_);
      }
      const Tensor firsts = skipped > 0 ? Tensor() : integers({B}, first, stream_);
      const int64_t position = rows.begin - skipped;
      keep(values(attend(keys, all_values, qkv, heads, position, 0.4, firsts)), first_text, first,
           {position, position + rows.size()});
    }
  }
  void keep(const Numbers& y, size_t first_text, const std::vector<int32_t>& first, Range tokens) {
    constexpr int64_t row = heads.query * D;
    for (const double x : y) EXPECT_TRUE(std::isfinite(x));
    for (size_t b = 0; b < first.size(); ++b) {
      for (int64_t i = std::max<int64_t>(tokens.begin, first[b]); i < tokens.end; ++i) {
        const int64_t n = static_cast<int64_t>(b) * tokens.size() + i - tokens.begin;
        Numbers& text = found_[first_text + b];
        text.insert(text.end(), y.begin() + n * row, y.begin() + (n + 1) * row);
      }
    }
  }

  std::vector<int64_t> lengths_;
  int64_t longest_;
  DType type_;
  Stream& stream_;
  std::vector<Tensor> texts_;
  std::vector<Numbers> found_;
};

// Attention of a token at `position` of caches that are full, and what is in these then; with
// `most` the position is read from device memory.
inline Numbers attend_at_place(const Shape& cache, const Heads& heads, DType t, int64_t position,
                               std::optional<int64_t> most, Stream& stream) {
  const int64_t B = cache[0], D = cache[3];
  const Tensor keys = normal(cache, t, stream, 1), all_values = normal(cache, t, stream, 2);
  const Tensor qkv = normal({B, 1, (heads.query + 2 * heads.key) * D}, t, stream, 3);
  const Tensor place = most ? integers({1}, {static_cast<int32_t>(position)}, stream) : Tensor();
  const std::vector<int32_t> firsts(static_cast<size_t>(B), 2);
  Numbers all = values(attend(keys, all_values, qkv, heads, most.value_or(position), 0.4,
                              integers({B}, firsts, stream), place));
  append(all, keys);
  append(all, all_values);
  return all;
}

// The peak memory of attention of n tokens at a position of a cache of 500.
inline size_t attention_peak(int64_t n, int64_t position, Stream& stream) {
  const Tensor keys({Shape{1, 2, 500, 8}}, stream), values({Shape{1, 2, 500, 8}}, stream);
  launch(Fill{.out = keys}, stream);
  launch(Fill{.out = values}, stream);
  const Tensor qkv = normal({1, n, 6 * 8}, DType::f32, stream, 1);
  const Tensor y = attend(keys, values, qkv, {.query = 2, .key = 2}, position, 1);
  stream.synchronize();
  return stream.memory().peak;
}

}  // namespace spool::testing
