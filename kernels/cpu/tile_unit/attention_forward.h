#pragma once

// Attention forward: 256 queries of a head against 256 keys at a time, under running maxima.  A
// query's sums take these steps of keys, and in them those of 32, in order, and a step that it does
// not see adds nothing, so its bits do not depend on other queries.

#include "spool/kernels/cpu/tile_unit/attention.h"

namespace spool::cpu::tiles {

constexpr float lowest = -3.40282347e38f;  // finite, so that of two such the difference is 0

// Panels of some keys and values; tells whether a value is infinite or NaN.
template <class Unit>
SPOOL_TILES_INLINE bool pack_keys_and_values(const AttentionHead& h, const Interval& keys,
                                             const AttentionForwardLane& lane) {
  for (int64_t j = keys.begin; j < keys.end; j += block) {
    const Extent extent = rows_within(h.T, j);
    char* key = lane.keys + (j - keys.begin) * 2 * h.D;
    char* value = lane.values + (j - keys.begin) / block * step_bytes;
    for (int64_t d = 0; d < h.D; d += block) {
      Steps<Unit>::right_of_columns(rows_at(h.keys, j, d), extent, key);
      Steps<Unit>::right(rows_at(h.values, j, d), extent, value);
      key += step_bytes, value += lane.values_panel;
    }
  }
  bool unbounded = false;
  for (int64_t d = 0; d < h.D; d += block) {
    char* const panel = lane.values + d / block * lane.values_panel;
    unbounded |= clear_unbounded(panel, panel_size(keys.size()));
  }
  return unbounded;
}

// 32 queries against some keys.
struct ForwardBlock {
  const AttentionHead& head;
  const AttentionForwardLane& lane;
  const Sight sight;
  Interval keys, steps;
  int64_t query, number;  // of the first, in the text and in its tile

  SPOOL_TILES_INLINE float* sums() const { return lane.sums + number * head.D; }
  SPOOL_TILES_INLINE float* largest() const { return lane.largest + number; }
  SPOOL_TILES_INLINE float* totals() const { return lane.totals + 16 * number; }
  SPOOL_TILES_INLINE const float* scores(int64_t i, int64_t step) const {
    return lane.scores + i * lane.scores_row + step * block;
  }
  SPOOL_TILES_INLINE char* weights(int64_t i, int64_t step) const {
    return lane.weights + step * step_bytes + i * 64;
  }
  SPOOL_TILES_INLINE int64_t key(int64_t step) const { return keys.begin + step * block; }
};

// A left panel of 32 queries, whose sign turns with that of the scale.
template <class Unit>
SPOOL_TILES_INLINE void pack_queries(const ForwardBlock& b) {
  for (int64_t d = 0; d < b.head.D; d += block) {
    Steps<Unit>::left(rows_at(b.head.queries, b.query, d), rows_within(b.head.T, b.query),
                      b.lane.queries + d / block * step_bytes);
  }
  if (b.head.scale >= 0) return;
  for (int64_t at = 0; at < 2 * block * b.head.D; at += 64) {
    store(b.lane.queries + at, load<Halves>(b.lane.queries + at) ^ uint16_t{0x8000});
  }
}

// The larger of scores that query i sees, place by place.
SPOOL_TILES_INLINE Floats largest_of(const ForwardBlock& b, int64_t i) {
  Floats most = all(lowest), other = most;
  for (int64_t step = b.steps.begin; step < b.steps.end; ++step) {
    const float* s = b.scores(i, step);
    Floats first = load<Floats>(s), second = load<Floats>(s + 16);
    if (const int64_t key = b.key(step); !b.sight.sees_all(key)) {
      first = b.sight.hidden_keys(i, key) ? all(lowest) : first;
      second = b.sight.hidden_keys(i, key + 16) ? all(lowest) : second;
    }
    most = larger(first, most), other = larger(second, other);
  }
  return larger(other, most);
}

// Folds each of 16 rows of 16 numbers to one.
template <class Unit, class F>
SPOOL_TILES_INLINE Floats fold_rows(const float* rows, const F& f) {
  alignas(64) float turned[16][16];
  Steps<Unit>::transpose(rows, 16, turned[0]);
  const auto row = [&](int i) SPOOL_TILES_LAMBDA { return load<Floats>(turned[i]); };
  Floats all_of = row(0);
  for (int i = 1; i < 16; ++i) all_of = f(row(i), all_of);
  return all_of;
}

// Turns query i's scores into weights, 2^((s - largest) factor), and returns their sums.
SPOOL_TILES_INLINE Floats weigh(const ForwardBlock& b, int64_t i, const Floats& largest,
                                const Floats& factor) {
  Floats total = {};
  for (int64_t step = b.steps.begin; step < b.steps.end; ++step) {
    const float* s = b.scores(i, step);
    Floats first = two_to(times(load<Floats>(s) - largest, factor));
    Floats second = two_to(times(load<Floats>(s + 16) - largest, factor));
    if (const int64_t key = b.key(step); !b.sight.sees_all(key)) {
      first = b.sight.hidden_keys(i, key) ? Floats{} : first;
      second = b.sight.hidden_keys(i, key + 16) ? Floats{} : second;
    }
    store(b.weights(i, step), narrow(first, second));
    total += first + second;
  }
  return total;
}

// The maxima with these scores, and by what the sums under the former ones shrink.
struct Maxima {
  alignas(64) float next[block], shrink[block];
  bool changed = false;
};

template <class Unit>
SPOOL_TILES_INLINE void find_maxima(const ForwardBlock& b, const Floats& factor, Maxima& maxima) {
  alignas(64) float rows[16][16];
  for (int64_t i = 0; i < block; i += 16) {
    for (int64_t r = 0; r < 16; ++r) store(rows[r], largest_of(b, i + r));
    const auto before = load<Floats>(b.largest() + i);
    const Floats now =
        larger(fold_rows<Unit>(rows[0], [](const Floats& x, const Floats& y)
                                            SPOOL_TILES_LAMBDA { return larger(x, y); }),
               before);
    const Floats shrink = two_to(times(before - now, factor));
    store(maxima.next + i, now);
    store(maxima.shrink + i, shrink);
    store(b.largest() + i, now);
    const Mask16 changed = now != before;
    maxima.changed |= has_any(changed);
  }
}

SPOOL_TILES_INLINE void shrink_sums(const ForwardBlock& b, const float* shrink) {
  for (int64_t d = 0; d < b.head.D; d += block) {
    float* row = b.sums() + d * block;
    for (int64_t i = 0; i < block; ++i, row += block) {
      const Floats factor = all(shrink[i]);
      store(row, load<Floats>(row) * factor);
      store(row + 16, load<Floats>(row + 16) * factor);
    }
  }
}

// The values that are infinite or NaN, of keys that are seen.
SPOOL_TILES_INLINE void add_unbounded_values(const ForwardBlock& b) {
  for (int64_t i = 0; i < block; ++i) {
    for (int64_t j = b.key(b.steps.begin); j < at_most(b.key(b.steps.end), b.head.T); ++j) {
      if (!b.sight.sees(i, j)) continue;
      const int64_t place = j - b.keys.begin;
      const float weight = number_at(b.weights(i, place / block) + 2 * (place % block));
      add_unbounded(weight, b.head.values.at + j * b.head.values.row, b.head.D,
                    [&](int64_t d) SPOOL_TILES_LAMBDA -> float& {
                      return b.sums()[place_in_blocks(i, d, b.head.D)];
                    });
    }
  }
}

template <class Unit>
SPOOL_TILES_INLINE void attend_block(const ForwardBlock& b, bool unbounded) {
  if (b.steps.size() == 0) return;
  pack_queries<Unit>(b);
  const int64_t D = b.head.D;
  for (int64_t step = b.steps.begin; step < b.steps.end; ++step) {
    multiply_block<Unit>({b.lane.queries}, b.lane.keys + step * block * 2 * D, steps_of(D),
                         {b.lane.scores + step * block, b.lane.scores_row}, false);
  }
  const float scale = b.head.scale < 0 ? -b.head.scale : b.head.scale;
  const Floats factor = all(scale * log2_of_e);
  Maxima maxima;
  find_maxima<Unit>(b, factor, maxima);
  for (int64_t i = 0; i < block; ++i) {
    float* const totals = b.totals() + 16 * i;
    const Floats before = times(load<Floats>(totals), all(maxima.shrink[i]));
    store(totals, before + weigh(b, i, all(maxima.next[i]), factor));
  }
  uint32_t& begun = b.lane.begun[b.number / block];
  if (begun && maxima.changed) shrink_sums(b, maxima.shrink);
  for (int64_t d = 0; d < D; d += block) {
    const char* const values =
        b.lane.values + d / block * b.lane.values_panel + b.steps.begin * step_bytes;
    multiply_block<Unit>({b.weights(0, b.steps.begin)}, values, b.steps.size(),
                         {b.sums() + d * block}, begun != 0);
  }
  begun = 1;
  if (unbounded) add_unbounded_values(b);
}

// y and lse of 32 queries.
template <class Unit>
SPOOL_TILES_INLINE void write_block(const AttentionHead& h, const AttentionOutput& out,
                                    const AttentionForwardLane& lane, int64_t query,
                                    int64_t number) {
  const int64_t rows = at_most(block, h.T - query);
  const float scale = h.scale < 0 ? -h.scale : h.scale;
  alignas(64) float totals[block], inverse[block];
  for (int64_t i = 0; i < block; i += 16) {
    const Floats total =
        fold_rows<Unit>(lane.totals + 16 * (number + i),
                        [](const Floats& x, const Floats& y) SPOOL_TILES_LAMBDA { return x + y; });
    store(totals + i, total);
    store(inverse + i, all(1) / total);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = lane.sums + number * h.D + i * block;
    uint16_t* y = out.y + (query + i) * out.row;
    for (int64_t d = 0; d < h.D; d += block, row += block * block, y += block) {
      const Floats factor = all(inverse[i]);
      store(y, narrow(load<Floats>(row) * factor, load<Floats>(row + 16) * factor));
    }
    out.lse[query + i] = __builtin_fmaf(lane.largest[number + i], scale, __builtin_logf(totals[i]));
  }
}

// The keys that a tile of queries sees, from the begin of a tile of keys.
SPOOL_TILES_INLINE Interval keys_seen(const AttentionHead& h, const Interval& queries) {
  int64_t first = h.first ? h.T : 0;
  if (h.first) {
    for (int64_t i = queries.begin; i < queries.end; ++i) first = at_most(h.first[i], first);
  }
  return {first / forward_keys * forward_keys, h.causal ? queries.end : h.T};
}

// Forward of the queries of a tile, which begins at a multiple of forward_queries.
template <class Unit>
void attend(const AttentionHead& h, const AttentionOutput& out, Interval queries, char* memory) {
  const AttentionForwardLane lane(h.T, h.D, memory);
  const int64_t rows = round_up_to_block(queries.size());
  for (int64_t i = 0; i < rows / block; ++i) lane.begun[i] = 0;
  std::memset(lane.totals, 0, static_cast<size_t>(rows * 16) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i) lane.largest[i] = lowest;
  Unit::configure();
  const Interval seen = keys_seen(h, queries);
  for (int64_t j = seen.begin; j < seen.end; j += forward_keys) {
    const Interval keys{j, at_most(j + forward_keys, seen.end)};
    const bool unbounded = pack_keys_and_values<Unit>(h, keys, lane);
    for (int64_t i = queries.begin; i < queries.end; i += block) {
      const Sight sight(h, i);
      attend_block<Unit>({h, lane, sight, keys, sight.steps(keys), i, i - queries.begin},
                         unbounded);
    }
  }
  Unit::release();
  for (int64_t i = queries.begin; i < queries.end; i += block) {
    write_block<Unit>(h, out, lane, i, i - queries.begin);
  }
}

}  // namespace spool::cpu::tiles
