// runs: threads
// SumAll, SquaredNorm and SumGranules on cuda.

#include "spool/kernels/reduce.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/random.h"
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
          SquaredNorm norm;
          std::vector<Tensor> tensors;
          int64_t granules = 0;
          for (uint64_t i = 0; !norm.x.full(); ++i) {
            const int64_t n = i < 2 * counts.size() ? counts[i % counts.size()] : 10;
            tensors.push_back(window(skip, n, cuda_types[i % 2], stream, i));
            norm.x.add(tensors.back());
            granules += ceil_div(n, norm_granule);
          }
          const Tensor out = unset({granules}, DType::f64, stream);
          norm.out = out;
          launch(norm, stream);
          return values(out);
        },
        1e-12);
  }
}

// One order on all devices: bit for bit.
TEST_F(CudaReduce, SumsOfGranulesMatchTheCpu) {
  for (const int64_t n : {0, 1, 1023, 1024, 1025, 5000, 1024 * 1024 + 3}) {
    expect_as_on_cpu(
        [=](Stream& stream) {
          std::vector<double> all(static_cast<size_t>(n));
          Random random(/*seed=*/3);
          for (double& x : all) x = 1.0 / (1 + random.next() % 1000);
          const Tensor granules = make_tensor<double>({n}, all, stream);
          const Tensor out = unset({1}, DType::f64, stream);
          launch(SumGranules{.out = out, .granules = granules}, stream);
          return values(out);
        },
        n == 0 ? 1e-30 : 1e-300);
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
