// Forward.  A piece is a tile of queries of one head, which meets the keys tile by tile.  Scores
// are kept transposed, s[j,i]: then queries alone need transposing, once a piece, and maxima and
// sums over keys run down the columns.

#include <limits>

#include "spool/kernels/attention.h"
#include "spool/kernels/cpu/attention_tiles.h"
#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace cpu {
namespace {

template <class S>
struct ForwardLane {
  Tile<S> queries;             // (D, tile), times scale
  Tile<S> keys, values, sums;  // (tile, D)
  Tile<S> scores;              // (tile of keys, tile of queries)
  S *largest, *total, *correction, *next;

  ForwardLane(Carver& c, int64_t D)
      : queries(c.tile<S>(D, tile_rows)),
        keys(c.tile<S>(tile_rows, D)),
        values(c.tile<S>(tile_rows, D)),
        sums(c.tile<S>(tile_rows, D)),
        scores(c.tile<S>(tile_rows, tile_rows)),
        largest(c.take<S>(tile_rows)),
        total(c.take<S>(tile_rows)),
        correction(c.take<S>(tile_rows)),
        next(c.take<S>(tile_rows)) {}
};

// One piece.  Tiles of keys begin where tiles of queries do: on the diagonal key j of a tile is
// seen by the queries from i = j on, before it by all.
template <class T>
class ForwardPiece {
  using S = accumulator_t<T>;
  static constexpr int64_t lanes = Vector<S>::lanes;

 public:
  ForwardPiece(const AttentionForward& kernel, const AttentionExtents& extents,
               const ForwardLane<S>& lane, int64_t b, int64_t h, int64_t tile)
      : kernel_(kernel), extents_(extents), lane_(lane), b_(b), h_(h) {
    queries_ = {tile * tile_rows, std::min((tile + 1) * tile_rows, extents.T)};
    width_ = round_up(queries_.size(), lanes);
  }

  void run() {
    const HeadRows<const T> q(kernel_.qkv, b_, h_, D());
    pack(lane_.values, q, queries_, D(), static_cast<S>(kernel_.scale));
    transpose(lane_.queries, lane_.values, queries_.size(), D());
    fill(lane_.sums, queries_.size(), S(0));
    std::fill(lane_.largest, lane_.largest + width_, -std::numeric_limits<S>::infinity());
    std::fill(lane_.total, lane_.total + width_, S(0));
    for (int64_t first = 0; first < queries_.end; first += tile_rows) {
      attend({first, std::min(first + tile_rows, queries_.end)});
    }
    write();
  }

 private:
  int64_t D() const { return extents_.D; }

  void attend(Range keys) {
    const int64_t kv = h_ / extents_.group();
    pack(lane_.keys, HeadRows<const T>(kernel_.qkv, b_, extents_.key(kv), D()), keys, D());
    pack(lane_.values, HeadRows<const T>(kernel_.qkv, b_, extents_.value(kv), D()), keys, D());
    const bool diagonal = keys.begin == queries_.begin;
    multiply<S>(
        {.c = lane_.scores, .a = as_is(lane_.keys), .b = lane_.queries, .rows = keys.size()},
        [&](int64_t j) {
          return BlockPart{{0, D()}, {first_column(j, diagonal), width_}};
        });
    if (diagonal) mask(keys.size());
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

  // The first column of row j of the scores that is not masked for good, down to a whole vector.
  static int64_t first_column(int64_t j, bool diagonal) { return diagonal ? j / lanes * lanes : 0; }

  // Brings what was summed under the largest score so far under the largest with these.
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

  // Scores to weights exp(s - largest), and their sum to the total.
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
    const HeadRows<T> y(kernel_.y, b_, h_, D());
    S* lse = kernel_.lse.as<S>() + (b_ * extents_.H + h_) * extents_.T + queries_.begin;
    for (int64_t i = 0; i < queries_.size(); ++i) {
      const S* sums = lane_.sums.data + i * lane_.sums.row;
      const S factor = 1 / lane_.total[i];
      put_all(D(), Sink<T, false>{y.at(queries_.begin + i)},
              [=](int64_t d) { return sums[d] * factor; });
      lse[i] = lane_.largest[i] + std::log(lane_.total[i]);
    }
  }

  const AttentionForward& kernel_;
  const AttentionExtents& extents_;
  const ForwardLane<S>& lane_;
  int64_t b_, h_, width_ = 0;
  Range queries_;
};

}  // namespace
}  // namespace cpu

size_t AttentionForward::workspace_bytes(const Architecture& architecture) const {
  const cpu::AttentionExtents e(qkv, y, heads);
  size_t bytes = 0;
  cpu::dispatch(qkv.dtype(), [&](auto x) {
    cpu::Carver lane;
    cpu::ForwardLane<cpu::accumulator_t<decltype(x)>>(lane, e.D);
    bytes = lane.used() * static_cast<size_t>(architecture.threads);
  });
  return bytes;
}

void run(const AttentionForward& k, CpuStream& stream) {
  const cpu::AttentionExtents e(k.qkv, k.y, k.heads);
  cpu::dispatch(k.qkv.dtype(), [&](auto x) {
    using T = decltype(x);
    using Lane = cpu::ForwardLane<cpu::accumulator_t<T>>;
    cpu::Carver first;
    Lane(first, e.D);
    const auto body = [&](int64_t piece, int64_t, int number) {
      cpu::Carver memory(k.workspace.data() + first.used() * static_cast<size_t>(number));
      const Lane lane(memory, e.D);
      // The pieces with the most keys go first.
      const int64_t tile = e.tiles() - 1 - piece / (e.B * e.H), head = piece % (e.B * e.H);
      cpu::ForwardPiece<T>(k, e, lane, head / e.H, head % e.H, tile).run();
    };
    stream.parallel_for(e.B * e.H * e.tiles(), 1, body);
  });
}

}  // namespace spool
