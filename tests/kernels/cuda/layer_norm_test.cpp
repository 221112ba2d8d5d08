// runs: threads
// Layer normalisation on cuda.

#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/layer_norm_testing.h"

namespace spool::testing {
namespace {

class CudaLayerNorm : public OnCuda {};

// No rows, odd ones, and rows kept in a warp, in a block, in either to its last pack, and in
// neither.
const std::vector<Extents> some{{0, 8},   {1, 5},    {7, 17},   {70, 24},  {9, 256}, {5, 264},
                                {6, 768}, {5, 1600}, {9, 2056}, {3, 4104}, {2, 8200}};

struct Case {
  int64_t N, C, skip = 0;
  DType type, parameters;  // types of the values and of the parameters' gradients
};

// N rows of C; the first element is `skip` elements into aligned memory.
Tensor matrix(const Case& c, int64_t N, Stream& stream, uint64_t seed, double deviation = 1) {
  const int64_t count = N * c.C;
  return normal({c.skip + count, 1}, c.type, stream, seed, deviation)
      .slice({c.skip, c.skip + count})
      .reshape({N, c.C});
}

LayerNormInputs inputs(const Case& c, Stream& stream) {
  return {.x = matrix(c, c.N, stream, 1, 2),
          .weight = matrix(c, 1, stream, 2).reshape({c.C}),
          .bias = matrix(c, 1, stream, 3).reshape({c.C}),
          .dy = matrix(c, c.N, stream, 4)};
}

void for_every_case(const std::function<void(const Case&)>& body) {
  for (const DType type : cuda_types) {
    for (const auto [N, C] : some) {
      for (const int64_t skip : {0, 1}) {
        body({.N = N, .C = C, .skip = skip, .type = type, .parameters = skip ? type : DType::f32});
      }
    }
  }
}

TEST_F(CudaLayerNorm, ForwardMatchesTheCpu) {
  for_every_case([](const Case& c) {
    expect_as_on_cpu(
        [=](Stream& stream) {
          LayerNormInputs in = inputs(c, stream);
          if (c.C % 3 == 0) in.bias = {};
          return values(LayerNormOutputs(in, stream).y);
        },
        tolerance(c.type));
    expect_as_on_cpu(
        [=](Stream& stream) {
          const LayerNormOutputs out(inputs(c, stream), stream);
          Numbers all = values(out.mean);
          append(all, out.rstd);
          return all;
        },
        tolerance(DType::f32));
  });
}

Numbers gradients(const Case& c, bool accumulate, Stream& stream) {
  const LayerNormInputs in = inputs(c, stream);
  const LayerNormOutputs out(in, stream);
  const auto start = [&](const Shape& shape, DType type) {
    return accumulate ? normal(shape, type, stream, 5) : unset(shape, type, stream);
  };
  const Tensor dx = start({c.N, c.C}, c.type);
  const Tensor dweight = start({c.C}, c.parameters), dbias = start({c.C}, c.parameters);
  LayerNormBackward k = layer_norm_backward(in, out);
  k.dx = Grad(dx, accumulate);
  k.dweight = Grad(dweight, accumulate);
  k.dbias = Grad(dbias, accumulate);
  launch(k, stream);
  Numbers all = values(dx);
  append(all, dweight);
  append(all, dbias);
  return all;
}

// Every case sets its gradients or adds to them, in turns of aligned and of misaligned ones;
// nightly it does both.
TEST_F(CudaLayerNorm, BackwardMatchesTheCpu) {
  int number = 0;
  for_every_case([&](const Case& c) {
    const bool turn = (number / 2 + number) % 2;
    ++number;
    for (const bool accumulate : {false, true}) {
      if (accumulate != turn && !nightly()) continue;
      SCOPED_TRACE(sentence(name(c.type), ' ', c.N, " x ", c.C, " from ", c.skip));
      expect_as_on_cpu([=](Stream& stream) { return gradients(c, accumulate, stream); },
                       tolerance(c.type));
    }
  });
}

// The variance is not a difference of large sums.
TEST_F(CudaLayerNorm, StaysPreciseFarFromZero) {
  for (const int64_t C : {17, 256, 2056}) {
    expect_as_on_cpu(
        [=](Stream& stream) {
          const LayerNormInputs in =
              inputs({.N = 5, .C = C, .type = DType::f32, .parameters = DType::f32}, stream);
          const Tensor offset = unset(in.x.shape(), DType::f32, stream);
          launch(Fill{.out = offset, .value = 1000}, stream);
          launch(Add{.out = Grad(in.x, /*add=*/true), .a = offset}, stream);
          return values(LayerNormOutputs(in, stream).y);
        },
        1e-4);
  }
}

TEST_F(CudaLayerNorm, AbsentGradientsLeaveTheOthersUnchanged) {
  const auto stream = cuda_stream();
  for (const int64_t C : {17, 264}) {
    const Case c{.N = 40, .C = C, .type = DType::bf16, .parameters = DType::f32};
    const LayerNormInputs in = inputs(c, *stream);
    const LayerNormOutputs out(in, *stream);
    const auto gradients = [&](int wanted) {
      const Tensor all[] = {unset({c.N, C}, c.type, *stream), unset({C}, c.parameters, *stream),
                            unset({C}, c.parameters, *stream)};
      LayerNormBackward k = layer_norm_backward(in, out);
      if (wanted & 1) k.dx = all[0];
      if (wanted & 2) k.dweight = all[1];
      if (wanted & 4) k.dbias = all[2];
      launch(k, *stream);
      return std::vector<Numbers>{values(all[0]), values(all[1]), values(all[2])};
    };
    const auto all = gradients(7);
    for (int wanted = 0; wanted < 7; ++wanted) {
      const auto part = gradients(wanted);
      for (size_t i = 0; i < 3; ++i) {
        if (wanted >> i & 1) {
          EXPECT_EQ(part[i], all[i]);
        } else {
          for (const double x : part[i]) ASSERT_TRUE(std::isnan(x));
        }
      }
    }
  }
}

// In layer_norm(x, p, p) both gradients are added to that of p.
TEST_F(CudaLayerNorm, OneParameterMayBeWeightAndBias) {
  for (const int64_t C : {264, 8200}) {
    const auto work = [=](Stream& stream) {
      const Case c{.N = 40, .C = C, .type = DType::f32, .parameters = DType::f32};
      const LayerNormInputs in = inputs(c, stream);
      const LayerNormOutputs out(in, stream);
      const Tensor both = unset({C}, DType::f32, stream);
      LayerNormBackward k = layer_norm_backward(in, out);
      k.dweight = both;
      k.dbias = Grad(both, /*add=*/true);
      launch(k, stream);
      return values(both);
    };
    expect_as_on_cpu(work, tolerance(DType::f32));
  }
}

TEST_F(CudaLayerNorm, DxMayBeWrittenOverDy) {
  const auto stream = cuda_stream();
  for (const int64_t C : {17, 264, 2056}) {
    const Case c{.N = 21, .C = C, .type = DType::bf16, .parameters = DType::f32};
    const LayerNormInputs in = inputs(c, *stream);
    const LayerNormOutputs out(in, *stream);
    const Tensor dx = unset({c.N, C}, c.type, *stream);
    const Tensor apart = unset({C}, DType::f32, *stream),
                 in_place = unset({C}, DType::f32, *stream);
    LayerNormBackward k = layer_norm_backward(in, out);
    k.dx = dx;
    k.dweight = apart;
    launch(k, *stream);
    k.dx = in.dy;
    k.dweight = in_place;
    launch(k, *stream);
    EXPECT_EQ(values(in.dy), values(dx));
    EXPECT_EQ(values(in_place), values(apart));
  }
}

}  // namespace
}  // namespace spool::testing
