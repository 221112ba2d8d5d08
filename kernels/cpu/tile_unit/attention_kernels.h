#pragma once

// Arguments of the functions of kernels.h that compute attention (kernels/attention.h has its
// formulas), and the memory that a thread needs for them.  Heads have a multiple of 32 numbers, up
// to 128.

#include "spool/kernels/cpu/tile_unit/kernels.h"
#include "spool/kernels/cpu/tile_unit/vectors.h"

namespace spool::cpu::tiles {

// Rows of bf16 of one head of one text, `row` elements apart.
struct AttentionRows {
  const uint16_t* at = nullptr;
  int64_t row = 0;
};

// A query head and its keys.  Query i sees keys first[i] to i or, if not causal, all T; first may
// be absent, which is 0.
struct AttentionHead {
  AttentionRows queries, keys, values;
  int64_t T = 0, D = 0;
  float scale = 1;
  bool causal = true;
  const int32_t* first = nullptr;
};

// What forward writes: y, in rows as those above, and lse.
struct AttentionOutput {
  uint16_t* y = nullptr;
  int64_t row = 0;
  float* lse = nullptr;
};

// What backward reads: dy, lse of forward, and delta, the sums of dy y.
struct AttentionUpstream {
  AttentionRows dy;
  const float *lse = nullptr, *delta = nullptr;
};

// Rows of the gradient of a head, bf16 or f32, written or added to.
struct AttentionGradient {
  void* at = nullptr;
  int64_t row = 0;
  bool is_f32 = false, accumulate = false;
};

// Sums (T, D) of dq over tiles of keys, of which one is the first and one the last.  Without sums
// each tile's part goes straight to the gradient: the first one sets it or adds to what is there,
// later ones add.
struct AttentionSums {
  float* at = nullptr;
  bool first = true, last = true;
};

// Queries and keys that are computed with together.  Their panels stay in the second-level cache.
constexpr int64_t forward_queries = 256, forward_keys = 256;
constexpr int64_t backward_queries = 128, backward_keys = 256;

// Cuts memory into parts, each on a line of the cache; without memory it only counts them.
class LaneParts {
 public:
  SPOOL_TILES_INLINE explicit LaneParts(char* memory) : memory_(memory) {}
  SPOOL_TILES_INLINE char* take(int64_t size) {
    char* const part = memory_ ? memory_ + used_ : nullptr;
    used_ += (size + 63) / 64 * 64;
    return part;
  }
  SPOOL_TILES_INLINE float* take_floats(int64_t count) {
    return reinterpret_cast<float*>(take(count * static_cast<int64_t>(sizeof(float))));
  }
  SPOOL_TILES_INLINE int64_t used() const { return used_; }

 private:
  char* memory_;
  int64_t used_ = 0;
};

// Rows of a tile of up to `most` rows, in whole blocks of 32.
SPOOL_TILES_INLINE int64_t tile_extent(int64_t T, int64_t most) {
  const int64_t whole = (T + 31) / 32 * 32;
  return whole < most ? whole : most;
}

// Memory of a thread in forward, for a tile of queries and one of keys.
struct AttentionForwardLane {
  char* queries;  // a left panel of 32 queries
  char* keys;     // right panels of 32 keys
  char* values;   // right panels of 32 columns, with the keys as terms
  float*
      scores;  // of 32 queries; rows are scores_row apart, so that they share no set of the cache
  char* weights;    // their left panel, with the keys as terms
  float* sums;      // of weights and values: 32 x 32 blocks, those of 32 queries side by side
  float* largest;   // score of each query
  float* totals;    // of each query's weights: 16, to be added up
  uint32_t* begun;  // whether 32 queries have sums
  int64_t scores_row, values_panel, bytes;

  SPOOL_TILES_INLINE AttentionForwardLane(int64_t T, int64_t D, char* memory) {
    const int64_t rows = tile_extent(T, forward_queries), terms = tile_extent(T, forward_keys);
    LaneParts parts(memory);
    scores_row = terms + 16;
    values_panel = 64 * terms;
    queries = parts.take(2 * 32 * D);
    keys = parts.take(2 * terms * D);
    values = parts.take(2 * terms * D);
    scores = parts.take_floats(32 * scores_row);
    weights = parts.take(2 * 32 * terms);
    sums = parts.take_floats(rows * D);
    largest = parts.take_floats(rows);
    totals = parts.take_floats(16 * rows);
    begun = reinterpret_cast<uint32_t*>(parts.take(rows / 32 * 4));
    bytes = parts.used();
  }
};

// Memory of a thread in backward, for a tile of keys and one of queries.  Scores are transposed: a
// row is a key.
struct AttentionBackwardLane {
  char *keys, *values;                // left panels of 32
  char* keys_turned;                  // left panels of 32 columns, with the keys as terms
  float *dkeys, *dvalues;             // 32 x 32 blocks, those of 32 keys side by side
  char *queries_turned, *dys_turned;  // right panels of 32 queries
  char *queries, *dys;                // right panels of 32 columns, with the queries as terms
  float *scores, *dweights;           // of 32 keys and 32 queries
  char *weights, *dscores;            // left panels of 32 keys, with the queries as terms
  char* dscores_turned;               // right panels of 32 queries, with the keys as terms
  float* dqueries;                    // transposed 32 x 32 blocks, those of 32 queries side by side
  uint32_t* keys_unbounded;           // whether a key is infinite or NaN
  uint32_t* begun;                    // whether 32 keys have sums
  int64_t keys_panel, queries_panel, bytes;

  SPOOL_TILES_INLINE AttentionBackwardLane(int64_t T, int64_t D, char* memory) {
    const int64_t terms = tile_extent(T, backward_keys), rows = tile_extent(T, backward_queries);
    LaneParts parts(memory);
    keys_panel = 64 * terms;
    queries_panel = 64 * rows;
    keys = parts.take(2 * terms * D);
    values = parts.take(2 * terms * D);
    keys_turned = parts.take(2 * terms * D);
    dkeys = parts.take_floats(terms * D);
    dvalues = parts.take_floats(terms * D);
    queries_turned = parts.take(2 * rows * D);
    dys_turned = parts.take(2 * rows * D);
    queries = parts.take(2 * rows * D);
    dys = parts.take(2 * rows * D);
    scores = parts.take_floats(32 * 32);
    dweights = parts.take_floats(32 * 32);
    weights = parts.take(2 * 32 * rows);
    dscores = parts.take(2 * 32 * rows);
    dscores_turned = parts.take(2 * rows * terms);
    dqueries = parts.take_floats(rows * D);
    keys_unbounded = reinterpret_cast<uint32_t*>(parts.take(4));
    begun = reinterpret_cast<uint32_t*>(parts.take(terms / 32 * 4));
    bytes = parts.used();
  }
};

}  // namespace spool::cpu::tiles
