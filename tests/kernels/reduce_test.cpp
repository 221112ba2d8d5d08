// SumAll, SquaredNorm and SumGranules on the cpu against sums in f64.

#include "spool/kernels/reduce.h"

#include <algorithm>
#include <numeric>

#include "spool/runtime/integer.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

TEST(Reduce, SumsInF64) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const int64_t n : {1, 5, 17, 1000, 200001}) {
      const Tensor x = normal({n}, t, stream, 1);
      const Tensor offset = unset({n}, t, stream);  // else the sum would be all cancellation
      launch(Fill{.out = offset, .value = 1}, stream);
      launch(Add{.out = Grad(x, true), .a = offset}, stream);
      const Numbers all = values(x);
      const double sum = std::accumulate(all.begin(), all.end(), 0.0);
      const Tensor by = normal({1}, accumulator(t), stream, 8);
      for (const DType to : {DType::f32, DType::f64}) {
        expect_gradient({{1}, to}, stream, {0.5 * sum}, [&](const Grad& out) {
          launch(SumAll{.out = out, .x = x, .factor = 0.5}, stream);
        });
        expect_gradient({{1}, to}, stream, {0.5 * values(by)[0] * sum}, [&](const Grad& out) {
          launch(SumAll{.out = out, .x = x, .factor = 0.5, .by = by}, stream);
        });
      }
    }
  }
}

TEST(Reduce, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor x = normal({500003}, t, stream, 1), out = unset({1}, DType::f64, stream);
      launch(SumAll{.out = out, .x = x}, stream);
      Numbers all = values(out);
      const Tensor granules =
          unset({2 * ceil_div<int64_t>(500003, norm_granule)}, DType::f64, stream);
      launch(SquaredNorm{.out = granules, .x = {x, x}}, stream);
      append(all, granules);
      launch(SumGranules{.out = out, .granules = granules}, stream);
      append(all, out);
      return all;
    });
  }
}

TEST(Reduce, NormHasEveryGranuleOfEveryTensorOfAList) {
  CpuStream stream(64 << 20, 2);
  launch(SquaredNorm{.out = Tensor({Shape{0}, DType::f64}, stream)}, stream);
  SquaredNorm norm;
  std::vector<Tensor> all;
  Numbers wanted;
  while (!norm.x.full()) {
    const auto i = static_cast<int64_t>(all.size());
    all.push_back(normal({i % 7 * 20000 + 1}, floating[all.size() % 3], stream, all.size()));
    const Numbers x = values(all.back());
    for (size_t k = 0; k < x.size(); ++k) {
      if (k % norm_granule == 0) wanted.push_back(0);
      wanted.back() += x[k] * x[k];
    }
    norm.x.add(all.back());
  }
  const Tensor out = unset({static_cast<int64_t>(wanted.size())}, DType::f64, stream);
  norm.out = out;
  launch(norm, stream);
  EXPECT_LT(difference(values(out), wanted), 1e-12);
  expect_error(ErrorKind::invalid, {"list"}, [&] { norm.x.add(all.front()); });
}

// Numbers whose sum depends on its order.
TEST(Reduce, GranulesAreAddedInBlocksOf1024) {
  CpuStream stream(64 << 20, 2);
  for (const int64_t n : {0, 1, 1023, 1024, 1025, 5000}) {
    const Tensor granules = normal({n}, DType::f64, stream, 3),
                 out = unset({1}, DType::f64, stream);
    const Numbers all = values(granules);
    double wanted = 0;
    for (size_t begin = 0; begin < all.size(); begin += 1024) {
      double block = 0;
      for (size_t i = begin; i < std::min(begin + 1024, all.size()); ++i) block += all[i];
      wanted += block;
    }
    launch(SumGranules{.out = out, .granules = granules}, stream);
    EXPECT_EQ(values(out), Numbers{wanted}) << n;
  }
}

}  // namespace
}  // namespace spool::testing
