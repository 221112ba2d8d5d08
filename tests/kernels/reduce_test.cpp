// SumAll and SquaredNorm on the cpu against sums in f64.

#include "spool/kernels/reduce.h"

#include <numeric>

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
      double squares = 0;
      for (const double value : all) squares += value * value;
      expect_gradient({{1}, DType::f64}, stream, {squares},
                      [&](const Grad& out) { launch(SquaredNorm{.out = out, .x = {x}}, stream); });
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
      launch(SquaredNorm{.out = Grad(out, true), .x = {x, x}}, stream);
      return values(out);
    });
  }
}

TEST(Reduce, NormCoversEveryTensorOfAList) {
  CpuStream stream(64 << 20, 2);
  const Tensor out = unset({1}, DType::f64, stream);
  SquaredNorm norm{.out = out};
  launch(norm, stream);
  EXPECT_EQ(values(out), Numbers{0});
  std::vector<Tensor> all;
  double squares = 0;
  while (!norm.x.full()) {
    const auto i = static_cast<int64_t>(all.size());
    all.push_back(normal({i % 7 * 20000 + 1}, floating[all.size() % 3], stream, all.size()));
    for (const double x : values(all.back())) squares += x * x;
    norm.x.add(all.back());
  }
  launch(norm, stream);
  EXPECT_LT(difference(values(out), {squares}), 1e-12);
  expect_error(ErrorKind::invalid, {"list"}, [&] { norm.x.add(all.front()); });
}

}  // namespace
}  // namespace spool::testing
