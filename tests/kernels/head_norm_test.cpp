// The norm of query and key heads on the cpu, against sums in f64.

#include "tests/kernels/head_norm_testing.h"

namespace spool::testing {
namespace {

struct Reference {
  Numbers y, r, dx, dquery, dkey;

  explicit Reference(const HeadNormRun& of)
      : y(values(of.x)),
        dx(values(of.dy)),
        dquery(static_cast<size_t>(of.D)),
        dkey(static_cast<size_t>(of.D)) {
    const Numbers x = values(of.x), query = values(of.query), key = values(of.key);
    const Numbers dy = values(of.dy);
    const auto [H, Hkv] = of.heads;
    for (int64_t i = 0; i < of.N * (H + 2 * Hkv); ++i) {
      const int64_t h = i % (H + 2 * Hkv);
      if (h < H + Hkv) head(static_cast<size_t>(i * of.D), x, dy, h < H ? query : key, h < H);
    }
  }
  void head(size_t begin, const Numbers& x, const Numbers& dy, const Numbers& weight,
            bool is_query) {
    const size_t D = weight.size();
    double squares = 0, products = 0;
    for (size_t d = 0; d < D; ++d) squares += x[begin + d] * x[begin + d];
    const double root = 1 / std::sqrt(squares / static_cast<double>(D) + 1e-6);
    r.push_back(root);
    for (size_t d = 0; d < D; ++d) products += dy[begin + d] * weight[d] * x[begin + d] * root;
    for (size_t d = 0; d < D; ++d) {
      const double h = x[begin + d] * root;
      y[begin + d] = h * weight[d];
      (is_query ? dquery : dkey)[d] += dy[begin + d] * h;
      dx[begin + d] = root * (dy[begin + d] * weight[d] - h * products / static_cast<double>(D));
    }
  }
};

TEST(HeadNorm, ForwardAndBackwardFollowTheirFormulas) {
  CpuStream stream(64 << 20, 2);
  for (const DType t : floating) {
    for (const Heads heads : {Heads{.query = 3, .key = 1}, Heads{.query = 2, .key = 2}}) {
      for (const auto [N, D] : std::vector<Extents>{{1, 5}, {7, 64}, {300, 16}}) {
        SCOPED_TRACE(sentence(name(t), ' ', N, " x ", D));
        const HeadNormRun run(N, heads, D, t, stream);
        const Reference wanted(run);
        EXPECT_LT(difference(values(run.y), wanted.y), tolerance(t));
        EXPECT_LT(difference(values(run.r), wanted.r), tolerance(accumulator(t)));
        expect_gradient(run.x.spec(), stream, wanted.dx,
                        [&](const Grad& dx) { launch(run.backward(dx, {}, {}), stream); });
        for (const DType to : {t, accumulator(t)}) {
          expect_gradient({{D}, to}, stream, wanted.dquery,
                          [&](const Grad& dq) { launch(run.backward({}, dq, {}), stream); });
          expect_gradient({{D}, to}, stream, wanted.dkey,
                          [&](const Grad& dk) { launch(run.backward({}, {}, dk), stream); });
        }
      }
    }
  }
}

TEST(HeadNorm, DxMayBeWrittenOverDy) {
  CpuStream stream(64 << 20, 2);
  const HeadNormRun run(30, {.query = 3, .key = 1}, 64, DType::f32, stream);
  const Tensor dx = unset(run.x.shape(), DType::f32, stream);
  const Tensor apart = unset({64}, DType::f32, stream), over = unset({64}, DType::f32, stream);
  launch(run.backward(dx, {}, apart), stream);
  launch(run.backward(run.dy, {}, over), stream);
  EXPECT_EQ(values(run.dy), values(dx));
  EXPECT_EQ(values(over), values(apart));
}

TEST(HeadNorm, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const HeadNormRun run(301, {.query = 4, .key = 2}, 32, t, stream);
      const Tensor dx = unset(run.x.shape(), t, stream), dq = unset({32}, t, stream);
      const Tensor dk = unset({32}, t, stream);
      launch(run.backward(dx, dq, dk), stream);
      Numbers all;
      for (const Tensor& result : {run.y, run.r, dx, dq, dk}) append(all, result);
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
