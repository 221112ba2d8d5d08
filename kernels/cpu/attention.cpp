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

// One piece.  Key `first + j` is seen by query `queries.begin + i` from i = j on if both tiles
// begin at the same place, and by all if it begins earlier.
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
    multiply<S>({lane_.scores, as_is(lane_.keys), lane_.queries, keys.size()}, [&](int64_t j) {
      return BlockPart{{0, D()}, {diagonal ? j / lanes * lanes : 0, width_}};
    });
    if (diagonal) mask(keys.size());
    weigh(keys.size(), diagonal);
    multiply<S>({lane_.sums, transposed(lane_.scores), lane_.values, queries_.size(), true},
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

  // Scores to weights exp(s - largest), and what was summed under the largest so far to the new
  // one.
  void weigh(int64_t keys, bool diagonal) {
    S *largest = lane_.largest, *total = lane_.total, *next = lane_.next;
    std::copy(largest, largest + width_, next);
    for (int64_t j = 0; j < keys; ++j) {
      const S* s = lane_.scores.data + j * lane_.scores.row;
#pragma omp simd
      for (int64_t i = diagonal ? j / lanes * lanes : 0; i < width_; ++i)
        next[i] = s[i] > next[i] ? s[i] : next[i];
    }
    S* correction = lane_.correction;
#pragma omp simd
    for (int64_t i = 0; i < width_; ++i) {
      correction[i] = exp(largest[i] - next[i]);
      total[i] *= correction[i];
      largest[i] = next[i];
    }
    for (int64_t j = 0; j < keys; ++j) {
      S* s = lane_.scores.data + j * lane_.scores.row;
      const int64_t from = diagonal ? j / lanes * lanes : 0;
#pragma omp simd
      for (int64_t i = from; i < width_; ++i) {
        s[i] = exp(s[i] - largest[i]);
        total[i] += s[i];
      }
      std::fill(s, s + from, S(0));
    }
    for (int64_t i = 0; i < queries_.size(); ++i) {
      S* sums = lane_.sums.data + i * lane_.sums.row;
#pragma omp simd
      for (int64_t d = 0; d < lane_.sums.row; ++d) sums[d] *= correction[i];
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
