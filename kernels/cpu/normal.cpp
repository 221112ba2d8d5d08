#include "spool/kernels/normal.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "spool/kernels/cpu/scalar.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/random.h"

namespace spool {
namespace {

void two_normals(uint32_t a, uint32_t b, double* z) {
  const double radius = std::sqrt(-2 * std::log((a + 1.0) * 0x1p-32));
  const double angle = 2 * std::numbers::pi * (b * 0x1p-32);
  z[0] = radius * std::cos(angle);
  z[1] = radius * std::sin(angle);
}

}  // namespace

void run(const NormalFill& k, CpuStream& stream) {
  const PhiloxKey key = philox_key(k.seed);
  const int64_t n = k.out.numel(), first = k.first / 4;
  cpu::dispatch(k.out.dtype(), [&]<class T>(T) {
    T* out = k.out.as<T>();
    stream.parallel_for(ceil_div<int64_t>(n, 4), 4096, [=](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const int64_t of_tensor = first + j;
        const auto w = philox(key, {static_cast<uint32_t>(of_tensor),
                                    static_cast<uint32_t>(of_tensor >> 32), k.tensor, 0});
        double z[4];
        two_normals(w[0], w[1], z);
        two_normals(w[2], w[3], z + 2);
        for (int64_t i = 4 * j; i < std::min(4 * j + 4, n); ++i) {
          out[i] = static_cast<T>(static_cast<float>(z[i - 4 * j]) * k.deviation);
        }
      }
    });
  });
}

}  // namespace spool
