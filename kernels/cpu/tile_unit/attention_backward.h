#pragma once

// Attention backward: the 256 keys of a tile against 128 queries at a time.  Scores are formed
// transposed, k q^T, a row for each key: so weights and their gradients are left factors as they
// are written, and lse and delta are vectors.  The sums of a key take all queries in one order, and
// those of a query the keys of a tile in order; what is hidden adds nothing.

#include "spool/kernels/cpu/tile_unit/attention.h"

namespace spool::cpu::tiles {

// Panels of a tile of keys, which have no sums yet.
template <class Unit>
void begin_keys(const AttentionHead& h, Interval keys, char* memory) {
  const AttentionBackwardLane lane(h.T, h.D, memory);
  for (int64_t j = keys.begin; j < keys.end; j += block) {
    const Extent extent = rows_within(h.T, j);
    const int64_t place = j - keys.begin;
    for (int64_t d = 0; d < h.D; d += block) {
      const int64_t at = place * 2 * h.D + d / block * step_bytes;
      Steps<Unit>::left(rows_at(h.keys, j, d), extent, lane.keys + at);
      Steps<Unit>::left(rows_at(h.values, j, d), extent, lane.values + at);
      Steps<Unit>::left_of_terms(
          rows_at(h.keys, j, d), extent,
          lane.keys_turned + d / block * lane.keys_panel + place / block * step_bytes);
    }
  }
  *lane.keys_unbounded = 0;
  for (int64_t d = 0; d < h.D; d += block) {
    char* const panel = lane.keys_turned + d / block * lane.keys_panel;
    if (clear_unbounded(panel, panel_size(keys.size()))) *lane.keys_unbounded = 1;
  }
  for (int64_t j = 0; j < steps_of(keys.size()); ++j) lane.begun[j] = 0;
}

// A tile of queries against one of keys.
struct BackwardTile {
  const AttentionHead& head;
  const AttentionUpstream& upstream;
  const AttentionBackwardLane& lane;
  Interval queries, keys;
  bool queries_unbounded = false, dys_unbounded = false;

  SPOOL_TILES_INLINE int64_t blocks() const { return steps_of(queries.size()); }
  SPOOL_TILES_INLINE int64_t query(int64_t i) const { return queries.begin + i * block; }
  SPOOL_TILES_INLINE int64_t key(int64_t j) const { return keys.begin + j * block; }
};

template <class Unit>
SPOOL_TILES_INLINE void pack_queries(BackwardTile& b) {
  const AttentionHead& h = b.head;
  for (int64_t i = 0; i < b.blocks(); ++i) {
    const Extent extent = rows_within(h.T, b.query(i));
    for (int64_t d = 0; d < h.D; d += block) {
      const int64_t turned = i * block * 2 * h.D + d / block * step_bytes;
      const int64_t at = d / block * b.lane.queries_panel + i * step_bytes;
      const Matrix query = rows_at(h.queries, b.query(i), d);
      const Matrix dy = rows_at(b.upstream.dy, b.query(i), d);
      Steps<Unit>::right_of_columns(query, extent, b.lane.queries_turned + turned);
      Steps<Unit>::right_of_columns(dy, extent, b.lane.dys_turned + turned);
      Steps<Unit>::right(query, extent, b.lane.queries + at);
      Steps<Unit>::right(dy, extent, b.lane.dys + at);
    }
  }
  const int64_t used = b.blocks() * step_bytes;
  for (int64_t d = 0; d < h.D; d += block) {
    const int64_t at = d / block * b.lane.queries_panel;
    b.queries_unbounded |= clear_unbounded(b.lane.queries + at, used);
    b.dys_unbounded |= clear_unbounded(b.lane.dys + at, used);
  }
}

// 32 queries: what they see, and -lse log2(e) and delta of each.
struct QueryBlock {
  Sight sight;
  Interval steps;
  alignas(64) float lse[block];
  alignas(64) float delta[block];

  SPOOL_TILES_INLINE QueryBlock(const BackwardTile& b, int64_t query)
      : sight(b.head, query), steps(sight.steps(b.keys)) {
    for (int64_t i = 0; i < block; ++i) {
      const bool within = query + i < b.head.T;
      lse[i] = within ? -log2_of_e * b.upstream.lse[query + i] : 0;
      delta[i] = within ? b.upstream.delta[query + i] : 0;
    }
  }
};

// The weights and the gradients of the scores of a key and 32 queries.
struct KeyRow {
  Halves weights, dscores;
};
SPOOL_TILES_INLINE KeyRow differentiate_row(const QueryBlock& q, const float* scores,
                                            const float* dweights, const Floats& factor,
                                            int64_t key, bool sees_all) {
  Floats p[2], ds[2];
  for (int half = 0; half < 2; ++half) {
    const int64_t i = 16 * half;
    p[half] = two_to(fused(load<Floats>(scores + i), factor, load<Floats>(q.lse + i)));
    ds[half] = p[half] * (load<Floats>(dweights + i) - load<Floats>(q.delta + i));
    if (!sees_all) {
      const Mask16 hidden = q.sight.hiding_queries(i, key);
      p[half] = hidden ? Floats{} : p[half];
      ds[half] = hidden ? Floats{} : ds[half];
    }
  }
  return {narrow(p[0], p[1]), narrow(ds[0], ds[1])};
}

// Scores of 32 keys, block j, and 32 queries, block i, their gradients, and the panels of both.
template <class Unit>
SPOOL_TILES_INLINE void differentiate_block(const BackwardTile& b, const QueryBlock& q, int64_t j,
                                            int64_t i) {
  const AttentionBackwardLane& lane = b.lane;
  const int64_t D = b.head.D, left = j * block * 2 * D, right = i * block * 2 * D;
  multiply_block<Unit>({lane.keys + left}, lane.queries_turned + right, steps_of(D), {lane.scores},
                       false);
  multiply_block<Unit>({lane.values + left}, lane.dys_turned + right, steps_of(D), {lane.dweights},
                       false);
  const Floats factor = all(b.head.scale * log2_of_e);
  const int64_t key = b.key(j);
  const bool sees_all = q.sight.sees_all(key);
  char* const weights = lane.weights + i * step_bytes;
  char* const dscores = lane.dscores + i * step_bytes;
  char* const turned = lane.dscores_turned + i * lane.keys_panel + j * step_bytes;
  for (int64_t r = 0; r < block; r += 2) {
    const float *const s = lane.scores + r * block, *const dp = lane.dweights + r * block;
    const KeyRow even = differentiate_row(q, s, dp, factor, key + r, sees_all);
    const KeyRow odd = differentiate_row(q, s + block, dp + block, factor, key + r + 1, sees_all);
    store(weights + 64 * r, even.weights);
    store(weights + 64 * (r + 1), odd.weights);
    store(dscores + 64 * r, even.dscores);
    store(dscores + 64 * (r + 1), odd.dscores);
    pair_rows(even.dscores, odd.dscores, turned + 32 * r);
  }
}

// Adds the terms of some blocks of queries, whose panels are there, to the sums of 32 keys.
template <class Unit>
SPOOL_TILES_INLINE void add_to_keys(const BackwardTile& b, int64_t j, const Interval& blocks) {
  const AttentionBackwardLane& lane = b.lane;
  const int64_t first = blocks.begin * step_bytes;
  for (int64_t d = 0; d < b.head.D; d += block) {
    const int64_t right = d / block * lane.queries_panel + first;
    const int64_t sums = j * block * b.head.D + d * block;
    multiply_block<Unit>({lane.weights + first}, lane.dys + right, blocks.size(),
                         {lane.dvalues + sums}, lane.begun[j] != 0);
    multiply_block<Unit>({lane.dscores + first}, lane.queries + right, blocks.size(),
                         {lane.dkeys + sums}, lane.begun[j] != 0);
  }
  lane.begun[j] = 1;
}

// The terms of query i that are infinite or NaN, and those of key j, both in the text.
SPOOL_TILES_INLINE void add_unbounded_pair(const BackwardTile& b, int64_t i, int64_t j) {
  const AttentionHead& h = b.head;
  const int64_t D = h.D, row = i - b.queries.begin, key = j - b.keys.begin;
  const int64_t at = row / block * step_bytes + key % block * 64 + row % block * 2;
  const float weight = number_at(b.lane.weights + at), ds = number_at(b.lane.dscores + at);
  if (b.dys_unbounded) {
    add_unbounded(weight, b.upstream.dy.at + i * b.upstream.dy.row, D,
                  [&](int64_t d) SPOOL_TILES_LAMBDA -> float& {
                    return b.lane.dvalues[place_in_blocks(key, d, D)];
                  });
  }
  if (b.queries_unbounded) {
    add_unbounded(ds, h.queries.at + i * h.queries.row, D,
                  [&](int64_t d) SPOOL_TILES_LAMBDA -> float& {
                    return b.lane.dkeys[place_in_blocks(key, d, D)];
                  });
  }
  if (*b.lane.keys_unbounded) {
    add_unbounded(ds, h.keys.at + j * h.keys.row, D, [&](int64_t d) SPOOL_TILES_LAMBDA -> float& {
      return b.lane.dqueries[row / block * block * D + d / block * block * block +
                             d % block * block + row % block];
    });
  }
}

SPOOL_TILES_INLINE void add_unbounded_terms(const BackwardTile& b, const QueryBlock* q, int64_t j,
                                            const Interval& blocks) {
  const Interval keys{b.key(j), at_most(b.key(j + 1), b.keys.end)};
  const Interval queries{b.query(blocks.begin), at_most(b.query(blocks.end), b.queries.end)};
  for (int64_t i = queries.begin; i < queries.end; ++i) {
    const int64_t row = i - b.queries.begin;
    for (int64_t key = keys.begin; key < keys.end; ++key) {
      if (q[row / block].sight.sees(row % block, key)) add_unbounded_pair(b, i, key);
    }
  }
}

// The blocks of queries from the first to the last that sees one of 32 keys.
SPOOL_TILES_INLINE Interval blocks_seeing(const QueryBlock* q, int64_t blocks, int64_t j) {
  Interval seeing;
  for (int64_t i = 0; i < blocks; ++i) {
    if (j < q[i].steps.begin || j >= q[i].steps.end) continue;
    if (seeing.size() == 0) seeing.begin = i;
    seeing.end = i + 1;
  }
  return seeing;
}

// Sums of dq of some blocks of queries become 0.
SPOOL_TILES_INLINE void clear_sums(const BackwardTile& b, int64_t begin, int64_t end) {
  std::memset(b.lane.dqueries + begin * block * b.head.D, 0,
              static_cast<size_t>((end - begin) * block * b.head.D) * sizeof(float));
}

// Adds a tile of queries' terms to the sums of the keys; what the keys add to dq stays in memory.
template <class Unit>
void differentiate(const AttentionHead& h, const AttentionUpstream& upstream, Interval queries,
                   Interval keys, char* memory) {
  const AttentionBackwardLane lane(h.T, h.D, memory);
  BackwardTile b{h, upstream, lane, queries, keys};
  pack_queries<Unit>(b);
  static_assert(backward_queries == 4 * block);
  const QueryBlock q[] = {{b, b.query(0)}, {b, b.query(1)}, {b, b.query(2)}, {b, b.query(3)}};
  const bool unbounded = b.queries_unbounded || b.dys_unbounded || *lane.keys_unbounded;
  if (unbounded) clear_sums(b, 0, b.blocks());
  Unit::configure();
  for (int64_t j = 0; j < steps_of(keys.size()); ++j) {
    const Interval blocks = blocks_seeing(q, b.blocks(), j);
    if (blocks.size() == 0) continue;
    for (int64_t i = blocks.begin; i < blocks.end; ++i) differentiate_block<Unit>(b, q[i], j, i);
    add_to_keys<Unit>(b, j, blocks);
    if (unbounded) add_unbounded_terms(b, q, j, blocks);
  }
  for (int64_t i = 0; i < b.blocks(); ++i) {
    const Interval steps = q[i].steps;
    if (steps.size() == 0) {
      clear_sums(b, i, i + 1);
      continue;
    }
    for (int64_t d = 0; d < h.D; d += block) {
      const int64_t first = steps.begin * step_bytes;
      multiply_block<Unit>({lane.keys_turned + d / block * lane.keys_panel + first},
                           lane.dscores_turned + i * lane.keys_panel + first, steps.size(),
                           {lane.dqueries + i * block * h.D + d * block}, unbounded);
    }
  }
  Unit::release();
}

// to[t,d...] (+)= factor x, 16 numbers.
SPOOL_TILES_INLINE void put(const AttentionGradient& to, int64_t t, int64_t d, const Floats& x,
                            float factor) {
  if (to.is_f32) {
    float* const at = static_cast<float*>(to.at) + t * to.row + d;
    store(at, to.accumulate ? fused(x, all(factor), load<Floats>(at)) : x * factor);
  } else {
    uint16_t* const at = static_cast<uint16_t*>(to.at) + t * to.row + d;
    store(at, narrow(to.accumulate ? fused(x, all(factor), widen(at)) : x * factor));
  }
}

// Adds what the keys of a tile add to dq of a tile of queries.
template <class Unit>
void add_queries(const AttentionHead& h, Interval queries, const AttentionSums& sums,
                 const AttentionGradient& to, char* memory) {
  const AttentionBackwardLane lane(h.T, h.D, memory);
  AttentionGradient part = to, total = to;
  part.accumulate |= !sums.first;
  if (sums.at) part = {sums.at, h.D, true, !sums.first};
  alignas(64) float rows[16][16];
  for (int64_t i = 0; i < queries.size(); i += 16) {
    const int64_t count = at_most(16, queries.size() - i);
    for (int64_t d = 0; d < h.D; d += 16) {
      const float* turned = lane.dqueries + i / block * block * h.D + i % block +
                            d / block * block * block + d % block * block;
      Steps<Unit>::transpose(turned, block, rows[0]);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t t = queries.begin + i + r;
        put(part, t, d, load<Floats>(rows[r]), h.scale);
        if (sums.at && sums.last) put(total, t, d, load<Floats>(sums.at + t * h.D + d), 1);
      }
    }
  }
}

// Writes dk and dv of a tile of keys.
template <class Unit>
void end_keys(const AttentionHead& h, Interval keys, const AttentionGradient& dkeys,
              const AttentionGradient& dvalues, char* memory) {
  const AttentionBackwardLane lane(h.T, h.D, memory);
  for (int64_t j = 0; j < keys.size(); ++j) {
    for (int64_t d = 0; d < h.D; d += 16) {
      const int64_t at = place_in_blocks(j, d, h.D);
      put(dkeys, keys.begin + j, d, load<Floats>(lane.dkeys + at), h.scale);
      put(dvalues, keys.begin + j, d, load<Floats>(lane.dvalues + at), 1);
    }
  }
}

}  // namespace spool::cpu::tiles
