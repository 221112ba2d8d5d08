#include "shared/unit_rate.h"

#include <algorithm>

#include "shared/device.h"
#include "spool/kernels/cpu/tile_unit/kernels.h"
#include "spool/runtime/cpu/tile_unit.h"

namespace spool::benchmarks {

double unit_rate(CpuStream& stream) {
  const TileUnit unit = stream.tile_unit();
  if (unit == TileUnit::absent) return 0;
  constexpr double flops_of_step = 4 * 2.0 * 16 * 16 * 32;  // four products of tiles
  const cpu::tiles::Kernels& kernels = cpu::tiles::kernels_of(unit);
  const int64_t pieces = 8 * stream.threads();  // so that the threads end at about the same time
  const auto seconds_for = [&](int64_t steps) {
    return seconds_of([&] {
      stream.enqueue([&stream, &kernels, pieces, steps] {
        stream.parallel_for(pieces, 1, [&](int64_t, int64_t) { kernels.spin(steps); });
      });
      stream.synchronize();
    });
  };
  constexpr double long_enough = 0.01;
  int64_t steps = 64;
  double best = seconds_for(steps);
  while (best < long_enough) best = seconds_for(steps *= 2);
  for (int again = 0; again < 5; ++again) best = std::min(best, seconds_for(steps));
  return static_cast<double>(pieces * steps) * flops_of_step / best;
}

}  // namespace spool::benchmarks
