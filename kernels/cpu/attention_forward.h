#pragma once

// A piece of attention forward: a tile of queries of one head against its keys, tile by tile.
// Scores are stored transposed, s[j,i]: then only queries need transposing, once per piece, and
// maxima and sums over keys run down the columns.

#include <cmath>
#include <limits>

#include "spool/kernels/cpu/attention_tiles.h"
#include "spool/kernels/cpu/attention_workspace.h"
#include "spool/kernels/cpu/loops.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {

// One head.  Query i belongs to token past + i and sees the keys up to its own or, without a mask,
// the first `past` keys.  Keys before its `first` are hidden from it; there is no past then.
template <class T>
struct ForwardHead {
  HeadRows<const T> queries, keys, values;
  HeadRows<T> y;
  accumulator_t<T>* lse = nullptr;  // may be absent
  int64_t D = 0, past = 0;
  double scale = 1;
  Mask mask = Mask::causal;
  const int32_t* first = nullptr;  // of each query; may be absent
};

// A tile of queries against tiles of keys.  One tile of keys ends with the past; after the past,
// tiles of keys begin at the same tokens as tiles of queries.  Queries i >= j see key j of the tile
// on the diagonal; all queries see the keys before that tile.
template <class T>
class ForwardPiece {
  using S = accumulator_t<T>;
  static constexpr int64_t lanes = Vector<S>::lanes;

 public:
  ForwardPiece(const ForwardHead<T>& head, const ForwardLane<S>& lane, Range queries)
      : head_(head), lane_(lane), queries_(queries), width_(round_up(queries.size(), lanes)) {}

  void run() {
    pack(lane_.values, head_.queries, queries_, D(), static_cast<S>(head_.scale));
    transpose(lane_.queries, lane_.values, queries_.size(), D());
    fill(lane_.sums, queries_.size(), S(0));
    // Finite, so that the weights of a tile that a query does not see are 0.
    std::fill(lane_.largest, lane_.largest + width_, std::numeric_limits<S>::lowest());
    std::fill(lane_.total, lane_.total + width_, S(0));
    attend_all({0, head_.past});
    if (head_.mask == Mask::causal) attend_all({first_tile(), head_.past + queries_.end});
    write();
  }

 private:
  int64_t D() const { return head_.D; }

  // The first key of the first tile that has a key some query sees.
  int64_t first_tile() const {
    if (!head_.first) return head_.past;
    const int64_t min = *std::min_element(head_.first + queries_.begin, head_.first + queries_.end);
    return min / tile_rows * tile_rows;
  }

  void attend_all(Range keys) {
    for (int64_t first = keys.begin; first < keys.end; first += tile_rows) {
      attend({first, std::min(first + tile_rows, keys.end)});
    }
  }

  void attend(Range keys) {
    pack(lane_.keys, head_.keys, keys, D());
    pack(lane_.values, head_.values, keys, D());
    const bool diagonal = keys.begin == head_.past + queries_.begin;
    multiply<S>(
        {.c = lane_.scores, .a = as_is(lane_.keys), .b = lane_.queries, .rows = keys.size()},
        [&](int64_t j) {
          return BlockPart{{0, D()}, {first_column(j, diagonal), width_}};
        });
    if (diagonal) mask(keys.size());
    if (head_.first) hide_before_first(keys);
    rescale(keys.size(), diagonal);
    weigh(keys.size(), diagonal);
    multiply<S>({.c = lane_.sums,
                 .a = transposed(lane_.scores),
                 .b = lane_.values,
                 .rows = queries_.size(),
                 .accumulate = true},
                [&](int64_t i) {
                  const int64_t seen = diagonal ? i + block_rows : keys.size();
                  return BlockPart{{0, std::min(seen, keys.size())}, {0, lane_.sums.row}};
                });
  }

  void mask(int64_t keys) {
    for (int64_t j = 0; j < keys; ++j) {
      S* row = lane_.scores.data + j * lane_.scores.row;
      std::fill(row, row + j, -std::numeric_limits<S>::infinity());
    }
  }

  void hide_before_first(Range keys) {
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      S* row = lane_.scores.data + (j - keys.begin) * lane_.scores.row;
      for (int64_t i = 0; i < queries_.size(); ++i) {
        if (j < head_.first[queries_.begin + i]) row[i] = -std::numeric_limits<S>::infinity();
      }
    }
  }

  // The first column of row j of the scores that is not masked, rounded down to a whole vector.
  static int64_t first_column(int64_t j, bool diagonal) { return diagonal ? j / lanes * lanes : 0; }

  // Updates the largest scores with this tile, and rescales totals and sums to the new ones.
  void rescale(int64_t keys, bool diagonal) {
    S *largest = lane_.largest, *next = lane_.next, *correction = lane_.correction;
    std::copy(largest, largest + width_, next);
    for (int64_t j = 0; j < keys; ++j) {
      const S* s = lane_.scores.data + j * lane_.scores.row;
#pragma omp simd
      for (int64_t i = first_column(j, diagonal); i < width_; ++i) {
        next[i] = s[i] > next[i] ? s[i] : next[i];
      }
    }
#pragma omp simd
    for (int64_t i = 0; i < width_; ++i) {
      correction[i] = exp(largest[i] - next[i]);
      lane_.total[i] *= correction[i];
      largest[i] = next[i];
    }
    for (int64_t i = 0; i < queries_.size(); ++i) {
      S* sums = lane_.sums.data + i * lane_.sums.row;
#pragma omp simd
      for (int64_t d = 0; d < lane_.sums.row; ++d) sums[d] *= correction[i];
    }
  }

  // Turns scores into weights exp(s - largest) and adds them to the totals.
  void weigh(int64_t keys, bool diagonal) {
    const S* largest = lane_.largest;
    S* total = lane_.total;
    for (int64_t j = 0; j < keys; ++j) {
      S* s = lane_.scores.data + j * lane_.scores.row;
      const int64_t first = first_column(j, diagonal);
      std::fill(s, s + first, S(0));
#pragma omp simd
      for (int64_t i = first; i < width_; ++i) {
        s[i] = exp(s[i] - largest[i]);
        total[i] += s[i];
      }
    }
  }

  void write() {
    for (int64_t i = 0; i < queries_.size(); ++i) {
      const int64_t query = queries_.begin + i;
      const S* sums = lane_.sums.data + i * lane_.sums.row;
      const S factor = 1 / lane_.total[i];
      put_all(D(), Sink<T, false>{head_.y.at(query)}, [=](int64_t d) { return sums[d] * factor; });
      if (head_.lse) head_.lse[query] = lane_.largest[i] + std::log(lane_.total[i]);
    }
  }

  const ForwardHead<T>& head_;
  const ForwardLane<S>& lane_;
  Range queries_;
  int64_t width_;
};

}  // namespace spool::cpu
