// A piece is a tile of keys of one key head; it loops over all queries that see it, and alone
// writes its dk and dv.  The pieces of a head add their terms of dq, in the accumulator type, in
// the order of their keys: each tile of queries has a turn, the number of key tiles added so far.

#include <atomic>

#include "spool/kernels/attention.h"
#include "spool/kernels/cpu/attention_delta.h"
#include "spool/kernels/cpu/attention_tile_unit.h"
#include "spool/kernels/cpu/attention_tiles.h"
#include "spool/kernels/cpu/attention_turns.h"
#include "spool/kernels/cpu/attention_workspace.h"
#include "spool/kernels/cpu/loops.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace cpu {
namespace {

// T is the type of the values, G that of the gradients.
template <class T, class G>
class BackwardPiece {
  using S = accumulator_t<T>;
  static constexpr int64_t lanes = Vector<S>::lanes;
  static constexpr bool separate = !std::is_same_v<G, S>;

 public:
  BackwardPiece(const AttentionBackward& kernel, const AttentionExtents& extents,
                const BackwardShared<S>& shared, const BackwardLane<S>& lane, int64_t b,
                int64_t head, int64_t tile)
      : kernel_(kernel),
        extents_(extents),
        shared_(shared),
        lane_(lane),
        b_(b),
        head_(head),
        tile_(tile),
        keys_(range_of(tile)),
        turns_(turns(kernel, extents, shared)) {}

  static AttentionTurns turns(const AttentionBackward& kernel, const AttentionExtents& extents,
                              const BackwardShared<S>& shared) {
    return {.kernel = kernel,
            .extents = extents,
            .queries = tile_rows,
            .keys = tile_rows,
            .turn = shared.turn};
  }

  void run() {
    const HeadRows<const T> k(kernel_.qkv, b_, extents_.key(head_), D());
    const HeadRows<const T> v(kernel_.qkv, b_, extents_.value(head_), D());
    pack(lane_.keys, v, keys_, D());
    transpose(lane_.values_transposed, lane_.keys, keys_.size(), D());
    pack(lane_.keys, k, keys_, D());
    transpose(lane_.keys_transposed, lane_.keys, keys_.size(), D());
    fill(lane_.dkeys, keys_.size(), S(0));
    fill(lane_.dvalues, keys_.size(), S(0));
    for (int64_t g = 0; g < extents_.group(); ++g) {
      for (int64_t i = tiles_of(extents_.T) - 1; i >= (causal() ? tile_ : 0); --i) {
        attend(head_ * extents_.group() + g, i);
      }
    }
    write(lane_.dkeys, extents_.key(head_));
    write(lane_.dvalues, extents_.value(head_));
  }

 private:
  int64_t D() const { return extents_.D; }
  bool causal() const { return kernel_.mask == Mask::causal; }
  int64_t first_of(int64_t query) const {
    return kernel_.first ? kernel_.first.as<int32_t>()[b_ * extents_.T + query] : 0;
  }
  Range range_of(int64_t tile) const {
    return {tile * tile_rows, std::min((tile + 1) * tile_rows, extents_.T)};
  }

  // Adds the terms of one tile of queries of head h, unless all keys are hidden from them.  On the
  // diagonal of a causal mask query i sees keys 0 to i, elsewhere it sees all.
  void attend(int64_t h, int64_t tile) {
    const int64_t first_tile = turns_.first(b_, tile);
    if (tile_ < first_tile) return;
    const Range queries = range_of(tile);
    const bool diagonal = causal() && tile == tile_;
    pack(lane_.queries, HeadRows<const T>(kernel_.qkv, b_, h, D()), queries, D(),
         static_cast<S>(kernel_.scale));
    pack(lane_.dy, HeadRows<const T>(kernel_.dy, b_, h, D()), queries, D());
    const auto seen = [&](int64_t i) {
      return diagonal ? std::min(i + block_rows, keys_.size()) : keys_.size();
    };
    const auto scores = [&](int64_t i) {
      return BlockPart{{0, D()}, {0, round_up(seen(i), lanes)}};
    };
    multiply<S>({.c = lane_.scores,
                 .a = as_is(lane_.queries),
                 .b = lane_.keys_transposed,
                 .rows = queries.size()},
                scores);
    multiply<S>({.c = lane_.dscores,
                 .a = as_is(lane_.dy),
                 .b = lane_.values_transposed,
                 .rows = queries.size()},
                scores);
    differentiate(h, queries, diagonal);
    add_to_keys(queries, diagonal);
    multiply<S>(
        {.c = lane_.dqueries, .a = as_is(lane_.dscores), .b = lane_.keys, .rows = queries.size()},
        [&](int64_t i) {
          return BlockPart{{0, seen(i)}, {0, lane_.keys.row}};
        });
    turns_.take(b_, h, tile, tile_, [&] { add_dqueries(h, queries, tile_ == first_tile); });
  }

  void add_to_keys(Range queries, bool diagonal) {
    const auto over_queries = [&](int64_t j) {
      return BlockPart{{diagonal ? j : 0, queries.size()}, {0, lane_.keys.row}};
    };
    multiply<S>({.c = lane_.dvalues,
                 .a = transposed(lane_.scores),
                 .b = lane_.dy,
                 .rows = keys_.size(),
                 .accumulate = true},
                over_queries);
    multiply<S>({.c = lane_.dkeys,
                 .a = transposed(lane_.dscores),
                 .b = lane_.queries,
                 .rows = keys_.size(),
                 .accumulate = true},
                over_queries);
  }

  // Turns scores into p, and dp into ds; zeros where a query does not see a key.
  void differentiate(int64_t h, Range queries, bool diagonal) {
    const int64_t row = (b_ * extents_.H + h) * extents_.T + queries.begin;
    const S *lse = kernel_.lse.as<S>() + row, *delta = shared_.delta + row;
    for (int64_t i = 0; i < queries.size(); ++i) {
      S* s = lane_.scores.data + i * lane_.scores.row;
      S* ds = lane_.dscores.data + i * lane_.dscores.row;
      const int64_t seen = diagonal ? std::min(i + 1, keys_.size()) : keys_.size();
      const int64_t width = round_up(seen, lanes);
      const S log_sum = lse[i], mean = delta[i];
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        s[j] = exp(s[j] - log_sum);
        ds[j] = s[j] * (ds[j] - mean);
      }
      const int64_t end = std::min(seen + block_rows, lane_.scores.row);
      std::fill(s + seen, s + end, S(0));
      std::fill(ds + seen, ds + end, S(0));
      const int64_t hidden =
          std::clamp<int64_t>(first_of(queries.begin + i) - keys_.begin, 0, seen);
      std::fill(s, s + hidden, S(0));
      std::fill(ds, ds + hidden, S(0));
    }
  }

  void add_dqueries(int64_t h, Range queries, bool first) {
    for (int64_t t = queries.begin; t < queries.end; ++t) {
      add_dquery(h, t, first, lane_.dqueries.data + (t - queries.begin) * lane_.dqueries.row);
    }
  }

  void add_dquery(int64_t h, int64_t t, bool first, const S* part) {
    const auto scale = static_cast<S>(kernel_.scale);
    const int64_t last_tile = causal() ? t / tile_rows : tiles_of(extents_.T) - 1;
    const bool last = tile_ == last_tile;
    G* const dq = HeadRows<G>(kernel_.dqkv.view, b_, h, D()).at(t);
    if constexpr (separate) {
      S* const sum = shared_.dqueries + ((b_ * extents_.H + h) * extents_.T + t) * D();
      put(Row<S>{sum, !first}, part, scale);
      if (last) put(Row<G>{dq, kernel_.dqkv.accumulate}, sum, S(1));
    } else {
      put(Row<G>{dq, !first || kernel_.dqkv.accumulate}, part, scale);
    }
  }

  void write(const Tile<S>& from, int64_t head) {
    const HeadRows<G> to(kernel_.dqkv.view, b_, head, D());
    for (int64_t j = 0; j < keys_.size(); ++j) {
      put(Row<G>{to.at(keys_.begin + j), kernel_.dqkv.accumulate}, from.data + j * from.row, S(1));
    }
  }

  // to[d] (+)= factor * from[d]
  template <class Out>
  struct Row {
    Out* data;
    bool accumulate;
  };
  template <class Out>
  void put(const Row<Out>& to, const S* from, S factor) const {
    const auto value = [=](int64_t d) { return factor * from[d]; };
    if (to.accumulate) {
      put_all(D(), Sink<Out, true>{to.data}, value);
    } else {
      put_all(D(), Sink<Out, false>{to.data}, value);
    }
  }

  const AttentionBackward& kernel_;
  const AttentionExtents& extents_;
  const BackwardShared<S>& shared_;
  const BackwardLane<S>& lane_;
  int64_t b_, head_, tile_;
  Range keys_;
  AttentionTurns turns_;
};

template <class T, class G>
void run_backward(const AttentionBackward& k, const AttentionExtents& e, CpuStream& stream) {
  using S = accumulator_t<T>;
  Carver memory(k.workspace.data());
  const BackwardShared<S> shared(memory, e, !std::is_same_v<G, S>);
  std::byte* const lanes = k.workspace.data() + memory.used();
  Carver lane_memory;
  BackwardLane<S>(lane_memory, e.D);
  find_delta<T>(k, e, shared.delta, stream);
  BackwardPiece<T, G>::turns(k, e, shared).begin();
  // Pieces start in order, so the piece that has its turn has started, and waiting cannot deadlock.
  // Pieces with the earliest keys, which have the most queries, go first.
  std::atomic<int64_t> next = 0;
  const int64_t heads = e.B * e.Hkv;
  stream.parallel_for(heads * tiles_of(e.T), 1, [&](int64_t, int64_t, int number) {
    const int64_t piece = next++, head = piece % heads;
    Carver own(lanes + lane_memory.used() * static_cast<size_t>(number));
    const BackwardLane<S> lane(own, e.D);
    BackwardPiece<T, G>(k, e, shared, lane, head / e.Hkv, head % e.Hkv, piece / heads).run();
  });
}

}  // namespace
}  // namespace cpu

void run(const AttentionBackward& k, CpuStream& stream) {
  if (!k.dqkv) return;
  const AttentionExtents e(k.qkv, k.y, k.heads);
  if (cpu::attention_fits_tile_unit(e, k.qkv.dtype(), stream.cpu())) {
    return cpu::run_on_tile_unit(k, e, stream);
  }
  cpu::dispatch(k.qkv.dtype(), [&](auto x) {
    using T = decltype(x);
    cpu::dispatch_gradient<T>(k.dqkv.view.dtype(),
                              [&](auto g) { cpu::run_backward<T, decltype(g)>(k, e, stream); });
  });
}

size_t AttentionBackward::workspace_bytes(const CpuArchitecture& architecture) const {
  if (!dqkv) return 0;
  const AttentionExtents e(qkv, y, heads);
  if (cpu::attention_fits_tile_unit(e, qkv.dtype(), architecture)) {
    return cpu::tile_unit_bytes(*this, e, architecture);
  }
  cpu::Carver shared, lane;
  cpu::dispatch(qkv.dtype(), [&](auto x) {
    using S = cpu::accumulator_t<decltype(x)>;
    cpu::BackwardShared<S>(shared, e, dqkv.view.dtype() != dtype_of<S>());
    cpu::BackwardLane<S>(lane, e.D);
  });
  return shared.used() + lane.used() * static_cast<size_t>(architecture.threads);
}

}  // namespace spool
