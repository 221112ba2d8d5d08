#include "spool/kernels/attention.h"

#include "spool/kernels/cpu/attention_forward.h"
#include "spool/kernels/cpu/attention_tile_unit.h"

namespace spool {

void run(const AttentionForward& k, CpuStream& stream) {
  const AttentionExtents e(k.qkv, k.y, k.heads);
  if (cpu::attention_fits_tile_unit(e, k.qkv.dtype(), stream.cpu())) {
    return cpu::run_on_tile_unit(k, e, stream);
  }
  cpu::dispatch(k.qkv.dtype(), [&](auto x) {
    using T = decltype(x);
    using Lane = cpu::ForwardLane<cpu::accumulator_t<T>>;
    cpu::Carver first;
    Lane(first, e.D);
    const auto body = [&](int64_t piece, int64_t, int number) {
      cpu::Carver memory(k.workspace.data() + first.used() * static_cast<size_t>(number));
      const Lane lane(memory, e.D);
      // Pieces with the most keys go first.
      const int64_t tile = cpu::tiles_of(e.T) - 1 - piece / (e.B * e.H),
                    place = piece % (e.B * e.H);
      const int64_t b = place / e.H, h = place % e.H, kv = h / e.group();
      const cpu::ForwardHead<T> head{.queries = {k.qkv, b, h, e.D},
                                     .keys = {k.qkv, b, e.key(kv), e.D},
                                     .values = {k.qkv, b, e.value(kv), e.D},
                                     .y = {k.y, b, h, e.D},
                                     .lse = k.lse.as<cpu::accumulator_t<T>>() + place * e.T,
                                     .D = e.D,
                                     .past = k.mask == Mask::none ? e.T : 0,
                                     .scale = k.scale,
                                     .mask = k.mask,
                                     .first = k.first ? k.first.as<int32_t>() + b * e.T : nullptr};
      const int64_t query = tile * cpu::tile_rows;
      cpu::ForwardPiece<T>(head, lane, {query, std::min(query + cpu::tile_rows, e.T)}).run();
    };
    stream.parallel_for(e.B * e.H * cpu::tiles_of(e.T), 1, body);
  });
}

size_t AttentionForward::workspace_bytes(const CpuArchitecture& architecture) const {
  const AttentionExtents e(qkv, y, heads);
  if (cpu::attention_fits_tile_unit(e, qkv.dtype(), architecture)) {
    return cpu::tile_unit_bytes(*this, e, architecture);
  }
  size_t bytes = 0;
  cpu::dispatch(qkv.dtype(), [&](auto x) {
    cpu::Carver lane;
    cpu::ForwardLane<cpu::accumulator_t<decltype(x)>>(lane, e.D);
    bytes = lane.used() * static_cast<size_t>(architecture.threads);
  });
  return bytes;
}

}  // namespace spool
