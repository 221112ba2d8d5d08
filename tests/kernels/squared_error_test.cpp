// SquaredErrorForward and SquaredErrorBackward on the cpu against plain loops.

#include "spool/kernels/squared_error.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

struct Inputs {
  Tensor x, y;
  Numbers difference;
  Inputs(int64_t N, int64_t C, DType type, Stream& stream)
      : x(normal({N, C}, type, stream, 1)), y(normal({N, C}, type, stream, 2)) {
    difference = values(x);
    const Numbers other = values(y);
    for (size_t i = 0; i < other.size(); ++i) difference[i] -= other[i];
  }
};

TEST(SquaredError, IsTheMeanOfEachRow) {
  CpuStream stream(64 << 20, 2);
  for (const DType type : floating) {
    for (const auto& [N, C] : extents) {
      const Inputs in(N, C, type, stream);
      Numbers wanted(static_cast<size_t>(N));
      for (int64_t i = 0; i < N * C; ++i) {
        const double d = at(in.difference, i);
        wanted[static_cast<size_t>(i / C)] += d * d / static_cast<double>(C);
      }
      const Tensor losses = unset({N}, accumulator(type), stream);
      launch(SquaredErrorForward{.losses = losses, .x = in.x, .y = in.y}, stream);
      EXPECT_LT(difference(values(losses), wanted), tolerance(accumulator(type)));
    }
  }
}

TEST(SquaredError, HasGradientsOfOppositeSign) {
  CpuStream stream(64 << 20, 2);
  for (const DType type : floating) {
    for (const auto& [N, C] : extents) {
      const Inputs in(N, C, type, stream);
      for (const int64_t each : {int64_t{1}, N}) {
        const Tensor upstream = normal({each}, accumulator(type), stream, 3);
        const Tensor scale = normal({1}, accumulator(type), stream, 4);
        const Numbers up = values(upstream);
        Numbers dx = in.difference, dy = dx;
        for (size_t i = 0; i < dx.size(); ++i) {
          const double g = up[each == 1 ? 0 : i / static_cast<size_t>(C)] * values(scale)[0];
          dx[i] *= 2 * 0.5 * g / static_cast<double>(C);
          dy[i] = -dx[i];
        }
        const auto launched = [&](const Grad& to_x, const Grad& to_y) {
          launch(SquaredErrorBackward{.dx = to_x,
                                      .dy = to_y,
                                      .x = in.x,
                                      .y = in.y,
                                      .upstream = upstream,
                                      .scale = scale,
                                      .factor = 0.5},
                 stream);
        };
        for (const DType to : {type, accumulator(type)}) {
          const Spec spec{{N, C}, to};
          expect_gradient(spec, stream, dx, [&](const Grad& g) { launched(g, {}); });
          expect_gradient(spec, stream, dy, [&](const Grad& g) { launched({}, g); });
        }
      }
    }
  }
}

TEST(SquaredError, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType type : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Inputs in(700, 300, type, stream);
      const Tensor losses = unset({700}, accumulator(type), stream);
      const Tensor dx = unset({700, 300}, type, stream);
      launch(SquaredErrorForward{.losses = losses, .x = in.x, .y = in.y}, stream);
      launch(SquaredErrorBackward{.dx = dx, .x = in.x, .y = in.y, .upstream = losses}, stream);
      return values(dx);
    });
  }
}

}  // namespace
}  // namespace spool::testing
