// runs: threads
// SumAll and SquaredNorm on cuda.

#include "spool/kernels/reduce.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaReduce : public OnCuda {};

// No elements, less than a pack, tails, one piece, and several.
const std::vector<int64_t> counts{0, 1, 7, 4099, 16384, 16385, 40007};

Tensor window(int64_t skip, int64_t n, DType type, Stream& stream, uint64_t seed) {
  return normal({skip + n, 1}, type, stream, seed).slice({skip, skip + n});
}

TEST_F(CudaReduce, SumsMatchTheCpu) {
  for (const DType type : cuda_types) {
    for (const int64_t n : counts) {
      for (const int64_t skip : {0, 1}) {
        expect_as_on_cpu(
            [=](Stream& stream) {
              const Tensor x = window(skip, n, type, stream, 1);
              const Tensor ones({x.shape(), type},
                                stream);  // else the sum would be all cancellation
              launch(Fill{.out = ones, .value = 1}, stream);
              launch(Add{.out = add_to(x), .a = ones}, stream);
              const Tensor by = normal({1}, DType::f32, stream, 2);
              Numbers all;
              for (const DType to : {DType::f32, DType::f64}) {
                const Tensor out = unset({1}, to, stream);
                launch(SumAll{.out = out, .x = x, .factor = 0.5}, stream);
                append(all, out);
                launch(SumAll{.out = add_to(out), .x = x, .by = by}, stream);
                append(all, out);
                launch(SumAll{.out = add_to(out), .x = x, .by = out}, stream);
                append(all, out);
              }
              return all;
            },
            n == 0 ? 1e-30 : 1e-6);
      }
    }
  }
}

TEST_F(CudaReduce, NormsOfManyTensorsMatchTheCpu) {
  for (const int64_t skip : {0, 1}) {
    expect_as_on_cpu(
        [=](Stream& stream) {
          const Tensor out = unset({1}, DType::f64, stream);
          launch(SquaredNorm{.out = out}, stream);
          Numbers all = values(out);
          SquaredNorm norm{.out = add_to(out)};
          std::vector<Tensor> tensors;
          for (uint64_t i = 0; !norm.x.full(); ++i) {
            const int64_t n = i < 2 * counts.size() ? counts[i % counts.size()] : 10;
            tensors.push_back(window(skip, n, cuda_types[i % 2], stream, i));
            norm.x.add(tensors.back());
          }
          launch(norm, stream);
          append(all, out);
          launch(norm, stream);
          append(all, out);
          return all;
        },
        1e-12);
  }
}

TEST_F(CudaReduce, SquaresDoNotOverflow) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{100}, DType::bf16}, *stream), out = unset({1}, DType::f64, *stream);
  launch(Fill{.out = x, .value = 0x1p100f}, *stream);
  launch(SquaredNorm{.out = out, .x = {x}}, *stream);
  EXPECT_EQ(values(out), Numbers{100 * 0x1p200});
}

TEST_F(CudaReduce, RefusesF64) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{4}, DType::f64}, *stream), out({Shape{1}, DType::f64}, *stream);
  expect_error(ErrorKind::invalid, {"f64"}, [&] { launch(SumAll{.out = out, .x = x}, *stream); });
}

}  // namespace
}  // namespace spool::testing
