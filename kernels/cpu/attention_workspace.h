#pragma once

// The workspace of attention on the cpu: the tiles that each thread computes in, and the sums that
// threads share in backward.

#include <cstddef>

#include "spool/kernels/attention.h"
#include "spool/kernels/cpu/tile_matmul.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {

// Queries or keys in a tile: whole blocks, whole vectors, and few enough that the tiles of a lane
// stay in its second-level cache.
constexpr int64_t tile_rows = 96;
static_assert(tile_rows % block_rows == 0 && tile_rows % Vector<float>::lanes == 0);

constexpr int64_t tiles_of(int64_t T) { return ceil_div(T, tile_rows); }

// Divides a workspace into aligned parts; without a base it only counts their bytes.
class Carver {
 public:
  explicit Carver(std::byte* base = nullptr) : base_(base) {}
  template <class S>
  S* take(int64_t n) {
    std::byte* const at = base_ ? base_ + used_ : nullptr;
    used_ += static_cast<size_t>(round_up<int64_t>(n * static_cast<int64_t>(sizeof(S)), 64));
    return reinterpret_cast<S*>(at);
  }
  template <class S>
  Tile<S> tile(int64_t rows, int64_t columns) {
    const int64_t row = round_up(columns, Vector<S>::lanes);
    return {take<S>(round_up(rows, block_rows) * row), row};
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// Memory of a thread in forward.
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

// Memory that the threads of backward share.
template <class S>
struct BackwardShared {
  S* delta;       // (B, H, T): sum_d dy y
  S* dqueries;    // (B, H, T, D); null if dqkv has the type of sums
  int32_t* turn;  // (B, H, tiles)

  BackwardShared(Carver& c, const AttentionExtents& e, bool separate)
      : delta(c.take<S>(e.B * e.H * e.T)),
        dqueries(separate ? c.take<S>(e.B * e.H * e.T * e.D) : nullptr),
        turn(c.take<int32_t>(e.B * e.H * tiles_of(e.T))) {}
};

// Memory of a thread in backward.
template <class S>
struct BackwardLane {
  Tile<S> keys_transposed, values_transposed;           // (D, tile of keys)
  Tile<S> keys, queries, dy, dqueries, dkeys, dvalues;  // (tile, D); queries times scale
  Tile<S> scores, dscores;                              // (tile of queries, tile of keys)

  BackwardLane(Carver& c, int64_t D)
      : keys_transposed(c.tile<S>(D, tile_rows)),
        values_transposed(c.tile<S>(D, tile_rows)),
        keys(c.tile<S>(tile_rows, D)),
        queries(c.tile<S>(tile_rows, D)),
        dy(c.tile<S>(tile_rows, D)),
        dqueries(c.tile<S>(tile_rows, D)),
        dkeys(c.tile<S>(tile_rows, D)),
        dvalues(c.tile<S>(tile_rows, D)),
        scores(c.tile<S>(tile_rows, tile_rows)),
        dscores(c.tile<S>(tile_rows, tile_rows)) {}
};

}  // namespace spool::cpu
