#include "spool/kernels/cpu/attention_tile_unit.h"

#include <algorithm>
#include <atomic>

#include "spool/kernels/cpu/attention_delta.h"
#include "spool/kernels/cpu/attention_tiles.h"
#include "spool/kernels/cpu/attention_turns.h"
#include "spool/kernels/cpu/attention_workspace.h"
#include "spool/kernels/cpu/tile_unit/attention_kernels.h"

namespace spool::cpu {
namespace {

using tiles::Interval;

tiles::AttentionRows rows_of(const View& t, int64_t b, int64_t head, int64_t D) {
  const HeadRows<const uint16_t> rows(t, b, head, D);
  return {rows.data, rows.row};
}

// Query head h of text b, with its key head.
template <class Kernel>
tiles::AttentionHead head_of(const Kernel& k, const AttentionExtents& e, int64_t b, int64_t h) {
  const int64_t kv = h / e.group();
  return {.queries = rows_of(k.qkv, b, h, e.D),
          .keys = rows_of(k.qkv, b, e.key(kv), e.D),
          .values = rows_of(k.qkv, b, e.value(kv), e.D),
          .T = e.T,
          .D = e.D,
          .scale = static_cast<float>(k.scale),
          .causal = k.mask == Mask::causal,
          .first = k.first ? k.first.template as<int32_t>() + b * e.T : nullptr};
}

Interval tile_at(int64_t tile, int64_t rows, int64_t T) {
  return {tile * rows, std::min((tile + 1) * rows, T)};
}

size_t forward_lane_bytes(const AttentionExtents& e) {
  return static_cast<size_t>(tiles::AttentionForwardLane(e.T, e.D, nullptr).bytes);
}

int64_t query_tiles(const AttentionExtents& e) { return ceil_div(e.T, tiles::backward_queries); }
int64_t key_tiles(const AttentionExtents& e) { return ceil_div(e.T, tiles::backward_keys); }

// Memory that the threads of backward share.
struct TileUnitShared {
  float* delta;     // (B, H, T)
  float* dqueries;  // (B, H, T, D): sums of dq over tiles of keys; null if the gradient has them
  int32_t* turn;    // (B, H, tiles of queries)

  TileUnitShared(Carver& c, const AttentionBackward& k, const AttentionExtents& e)
      : delta(c.take<float>(e.B * e.H * e.T)),
        dqueries(k.dqkv.view.dtype() != DType::f32 && key_tiles(e) > 1
                     ? c.take<float>(e.B * e.H * e.T * e.D)
                     : nullptr),
        turn(c.take<int32_t>(e.B * e.H * query_tiles(e))) {}
};

// A piece is a tile of keys of one key head: it takes all queries that see it, and alone writes dk
// and dv.  The pieces of a head add to dq in turns.
class KeyPiece {
 public:
  KeyPiece(const tiles::Kernels& unit, const AttentionBackward& k, const AttentionExtents& e,
           const TileUnitShared& shared, char* lane)
      : unit_(unit), k_(k), e_(e), shared_(shared), lane_(lane), turns_(turns(k, e, shared)) {}

  static AttentionTurns turns(const AttentionBackward& k, const AttentionExtents& e,
                              const TileUnitShared& shared) {
    return {.kernel = k,
            .extents = e,
            .queries = tiles::backward_queries,
            .keys = tiles::backward_keys,
            .turn = shared.turn};
  }

  void run(int64_t b, int64_t kv, int64_t tile) const {
    const Interval keys = tile_at(tile, tiles::backward_keys, e_.T);
    const int64_t h = kv * e_.group();
    unit_.begin_keys(head_of(k_, e_, b, h), keys, lane_);
    const int64_t seen_from = k_.mask == Mask::causal ? keys.begin / tiles::backward_queries : 0;
    for (int64_t g = 0; g < e_.group(); ++g) {
      for (int64_t i = query_tiles(e_) - 1; i >= seen_from; --i) attend(b, h + g, i, tile, keys);
    }
    unit_.end_keys(head_of(k_, e_, b, h), keys, gradient(b, e_.key(kv)), gradient(b, e_.value(kv)),
                   lane_);
  }

 private:
  tiles::AttentionGradient gradient(int64_t b, int64_t head) const {
    const bool f32 = k_.dqkv.view.dtype() == DType::f32;
    tiles::AttentionGradient to{.is_f32 = f32, .accumulate = k_.dqkv.accumulate};
    if (f32) {
      const HeadRows<float> rows(k_.dqkv.view, b, head, e_.D);
      to.at = rows.data, to.row = rows.row;
    } else {
      const HeadRows<uint16_t> rows(k_.dqkv.view, b, head, e_.D);
      to.at = rows.data, to.row = rows.row;
    }
    return to;
  }

  // Nothing if all keys are hidden.
  void attend(int64_t b, int64_t h, int64_t query_tile, int64_t key_tile, Interval keys) const {
    const int64_t first = turns_.first(b, query_tile);
    if (key_tile < first) return;
    const tiles::AttentionHead head = head_of(k_, e_, b, h);
    const int64_t row = (b * e_.H + h) * e_.T;
    const Interval queries = tile_at(query_tile, tiles::backward_queries, e_.T);
    unit_.differentiate(head,
                        {.dy = rows_of(k_.dy, b, h, e_.D),
                         .lse = k_.lse.as<float>() + row,
                         .delta = shared_.delta + row},
                        queries, keys, lane_);
    const int64_t last =
        k_.mask == Mask::causal ? queries.begin / tiles::backward_keys : key_tiles(e_) - 1;
    turns_.take(b, h, query_tile, key_tile, [&] {
      unit_.add_queries(head, queries,
                        {.at = shared_.dqueries ? shared_.dqueries + row * e_.D : nullptr,
                         .first = key_tile == first,
                         .last = key_tile == last},
                        gradient(b, h), lane_);
    });
  }

  const tiles::Kernels& unit_;
  const AttentionBackward& k_;
  const AttentionExtents& e_;
  const TileUnitShared& shared_;
  char* lane_;
  AttentionTurns turns_;
};

size_t backward_lane_bytes(const AttentionExtents& e) {
  return static_cast<size_t>(tiles::AttentionBackwardLane(e.T, e.D, nullptr).bytes);
}

}  // namespace

bool attention_fits_tile_unit(const AttentionExtents& e, DType dtype,
                              const CpuArchitecture& architecture) {
  return dtype == DType::bf16 && e.D > 0 && e.D <= 128 && e.D % 32 == 0 &&
         architecture.bf16_products == Bf16Products::tiles;
}

size_t tile_unit_bytes(const AttentionForward&, const AttentionExtents& e,
                       const CpuArchitecture& architecture) {
  return forward_lane_bytes(e) * static_cast<size_t>(architecture.threads);
}

size_t tile_unit_bytes(const AttentionBackward& k, const AttentionExtents& e,
                       const CpuArchitecture& architecture) {
  Carver shared;
  TileUnitShared(shared, k, e);
  return shared.used() + backward_lane_bytes(e) * static_cast<size_t>(architecture.threads);
}

void run_on_tile_unit(const AttentionForward& k, const AttentionExtents& e, CpuStream& stream) {
  const tiles::Kernels& unit = tiles::kernels_of(stream.tile_unit());
  const int64_t heads = e.B * e.H, count = ceil_div(e.T, tiles::forward_queries);
  const size_t lane_bytes = forward_lane_bytes(e);
  stream.parallel_for(heads * count, 1, [&](int64_t piece, int64_t, int number) {
    // Pieces with the most keys go first.
    const int64_t tile = count - 1 - piece / heads, place = piece % heads;
    const int64_t b = place / e.H, h = place % e.H;
    const HeadRows<uint16_t> y(k.y, b, h, e.D);
    auto* const lanes = reinterpret_cast<char*>(k.workspace.data());
    unit.attend(head_of(k, e, b, h),
                {.y = y.data, .row = y.row, .lse = k.lse.as<float>() + place * e.T},
                tile_at(tile, tiles::forward_queries, e.T),
                lanes + lane_bytes * static_cast<size_t>(number));
  });
}

void run_on_tile_unit(const AttentionBackward& k, const AttentionExtents& e, CpuStream& stream) {
  const tiles::Kernels& unit = tiles::kernels_of(stream.tile_unit());
  Carver memory(k.workspace.data());
  const TileUnitShared shared(memory, k, e);
  auto* const lanes = reinterpret_cast<char*>(k.workspace.data() + memory.used());
  find_delta<bf16>(k, e, shared.delta, stream);
  KeyPiece::turns(k, e, shared).begin();
  // Pieces start in order, so the piece that has its turn has started, and waiting cannot deadlock.
  // Pieces with the earliest keys, which have the most queries, go first.
  std::atomic<int64_t> next = 0;
  const int64_t heads = e.B * e.Hkv;
  const size_t lane_bytes = backward_lane_bytes(e);
  stream.parallel_for(heads * key_tiles(e), 1, [&](int64_t, int64_t, int number) {
    const int64_t piece = next++, head = piece % heads;
    char* const lane = lanes + lane_bytes * static_cast<size_t>(number);
    KeyPiece(unit, k, e, shared, lane).run(head / e.Hkv, head % e.Hkv, piece / heads);
  });
}

}  // namespace spool::cpu
