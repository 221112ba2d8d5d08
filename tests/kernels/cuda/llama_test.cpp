// runs: threads
// The kernels of the Llama family on cuda: the norm by the root mean square, rotary positions and
// the gated activation.

#include "spool/kernels/rms_norm.h"
#include "spool/kernels/rope.h"
#include "spool/kernels/swiglu.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaLlama : public OnCuda {};

// A tensor whose first element is `skip` elements into aligned memory.
Tensor numbers(const Shape& shape, DType t, Stream& stream, uint64_t seed, int64_t skip) {
  const int64_t count = shape.numel();
  return normal({skip + count, 1}, t, stream, seed).slice({skip, skip + count}).reshape(shape);
}

struct Gradients {
  DType type;
  bool adds;
  Stream& stream;
  Tensor start(const Shape& shape) const {
    return adds ? normal(shape, type, stream, 9) : unset(shape, type, stream);
  }
};

struct NormCase {
  int64_t N, C, skip;
  DType t, parameters;
  bool adds;
};

Numbers rms_norm(const NormCase& c, Stream& stream) {
  const Tensor x = numbers({c.N, c.C}, c.t, stream, 1, c.skip);
  const Tensor dy = numbers({c.N, c.C}, c.t, stream, 2, c.skip);
  const Tensor weight = numbers({c.C}, c.t, stream, 3, c.skip);
  const Tensor y = unset({c.N, c.C}, c.t, stream), r = unset({c.N}, DType::f32, stream);
  launch(RmsNormForward{.y = y, .r = r, .x = x, .weight = weight}, stream);
  const Tensor dx = Gradients{c.t, c.adds, stream}.start({c.N, c.C});
  const Tensor dweight = Gradients{c.parameters, c.adds, stream}.start({c.C});
  RmsNormBackward k{.dx = Grad(dx, c.adds),
                    .dweight = Grad(dweight, c.adds),
                    .dy = dy,
                    .x = x,
                    .weight = weight,
                    .r = r};
  launch(k, stream);
  Numbers all;
  for (const Tensor& result : {y, dx, dweight}) append(all, result);
  // One gradient alone has the same bits, and dx may be written over dy.
  const Tensor alone = Gradients{c.parameters, c.adds, stream}.start({c.C});
  k.dx = {};
  k.dweight = Grad(alone, c.adds);
  launch(k, stream);
  EXPECT_EQ(values(alone), values(dweight));
  if (c.adds) return all;
  k.dx = dy;
  k.dweight = {};
  launch(k, stream);
  EXPECT_EQ(values(dy), values(dx));
  return all;
}

// Rows kept in a warp, in a block, in either to its last pack, and in neither.
TEST_F(CudaLlama, RmsNormMatchesTheCpu) {
  int number = 0;
  for (const DType t : cuda_types) {
    for (const auto [N, C] : std::vector<Extents>{{0, 8},
                                                  {1, 5},
                                                  {70, 24},
                                                  {9, 256},
                                                  {5, 264},
                                                  {6, 768},
                                                  {5, 1600},
                                                  {9, 2056},
                                                  {2, 8200}}) {
      const int64_t skip = C % 5 == 0;
      const NormCase c{N, C, skip, t, skip ? t : DType::f32, ++number % 2 == 0};
      SCOPED_TRACE(sentence(name(t), ' ', N, " x ", C));
      expect_as_on_cpu([=](Stream& stream) { return rms_norm(c, stream); }, tolerance(t));
    }
  }
}

TEST_F(CudaLlama, SwigluMatchesTheCpu) {
  for (const DType t : cuda_types) {
    for (const auto [N, I] : std::vector<Extents>{{1, 1}, {3, 5}, {7, 64}, {33, 1000}}) {
      for (const bool adds : {false, true}) {
        const auto work = [=, N = N, I = I](Stream& stream) {
          const Tensor x = numbers({N, 2 * I}, t, stream, 1, I % 2);
          const Tensor dy = numbers({N, I}, t, stream, 2, 0), y = unset({N, I}, t, stream);
          launch(SwigluForward{.y = y, .x = x}, stream);
          const Tensor dx = Gradients{adds ? DType::f32 : t, adds, stream}.start({N, 2 * I});
          launch(SwigluBackward{.dx = Grad(dx, adds), .dy = dy, .x = x}, stream);
          Numbers all = values(y);
          append(all, dx);
          if (adds) return all;
          launch(SwigluBackward{.dx = x, .dy = dy, .x = x}, stream);
          EXPECT_EQ(values(x), values(dx));
          return all;
        };
        SCOPED_TRACE(sentence(name(t), ' ', N, " x ", I));
        expect_as_on_cpu(work, tolerance(t));
      }
    }
  }
}

// Heads loaded in packs and one by one, with positions and without, forth and back.
TEST_F(CudaLlama, RopeMatchesTheCpu) {
  constexpr Heads heads{.query = 3, .key = 1};
  const std::vector<int32_t> any{0, 1, 2, 0, 1, 29, 17, 17, 3, 0};
  for (const DType t : cuda_types) {
    for (const int64_t D : {2, 6, 16, 48, 64}) {
      for (const int turn : {0, 1, 2, 3}) {
        const auto work = [=](Stream& stream) {
          const bool adds = turn % 2;
          const Tensor x = numbers({2, 5, 5 * D}, t, stream, 1, D == 48);
          const Tensor table = normal({30, D}, DType::f32, stream, 2);
          const Tensor at = turn < 2 ? integers({2, 5}, any, stream) : Tensor();
          const Tensor y = Gradients{adds ? DType::f32 : t, adds, stream}.start(x.shape());
          Rope k{.y = Grad(y, adds), .x = x, .table = table, .heads = heads, .back = turn == 1};
          k.positions = at;
          k.first_position = turn == 2 ? 25 : 0;
          launch(k, stream);
          if (adds) return values(y);
          k.y = x;
          launch(k, stream);
          EXPECT_EQ(values(x), values(y));
          return values(y);
        };
        SCOPED_TRACE(sentence(name(t), ", heads of ", D));
        expect_as_on_cpu(work, tolerance(t));
      }
    }
  }
}

TEST_F(CudaLlama, PositionsOutsideTheTableGiveNaN) {
  const auto stream = cuda_stream();
  const Tensor x = normal({1, 3, 3 * 16}, DType::f32, *stream, 1);
  const Tensor y = unset(x.shape(), DType::f32, *stream);
  launch(Rope{.y = y,
              .x = x,
              .table = normal({4, 16}, DType::f32, *stream, 2),
              .positions = integers({1, 3}, {3, 4, -1}, *stream)},
         *stream);
  const Numbers found = values(y);
  for (int64_t i = 0; i < 3 * 48; ++i) {
    EXPECT_EQ(std::isnan(at(found, i)), i / 48 > 0 && i % 48 < 32) << i;
  }
}

}  // namespace
}  // namespace spool::testing
