// runs: threads
// Sums of rows, softmax and squared errors on cuda.

#include "spool/kernels/softmax.h"
#include "spool/kernels/squared_error.h"
#include "spool/kernels/sum_rows.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

// Rows shorter and longer than a warp, those that a block takes, aligned or not, and none.
const std::vector<Extents> cases{{3, 1},    {9, 7},      {17, 32},  {5, 200},
                                 {1, 1024}, {2, 50'000}, {2, 1029}, {0, 8}};

double bound(DType type) { return type == DType::f32 ? 1e-5 : 1e-2; }

class CudaRows : public OnCuda {
 protected:
  // Expects that work(extents, type, stream) returns the same on both devices.
  template <class Work>
  void expect(const Work& work) {
    for (const Extents& e : cases) {
      for (const DType type : cuda_types) {
        SCOPED_TRACE(sentence(e.N, " rows of ", e.C, ", ", name(type)));
        expect_as_on_cpu([&](Stream& stream) { return work(e, type, stream); },
                         e.N == 0 ? 1e-30 : bound(type));
      }
    }
  }
  // What work(gradient) writes, and what it adds, in both types that it may have.
  template <class Work>
  static void append_gradients(Numbers& to, const Shape& shape, DType type, Stream& stream,
                               const Work& work) {
    for (const DType gradient : {type, DType::f32}) {
      const Tensor set = unset(shape, gradient, stream), added = normal(shape, gradient, stream, 9);
      work(Grad(set));
      work(add_to(added));
      append(to, set);
      append(to, added);
    }
  }
};

TEST_F(CudaRows, SumsMatchTheCpu) {
  expect([](const Extents& e, DType type, Stream& stream) {
    const Tensor x = normal({e.N, e.C}, type, stream, 1);
    Numbers all;
    append_gradients(all, {e.N}, type, stream, [&](const Grad& y) {
      launch(SumRows{.y = y, .x = x, .C = e.C, .factor = 0.5}, stream);
    });
    return all;
  });
}

TEST_F(CudaRows, SpreadMatchesTheCpu) {
  expect([](const Extents& e, DType type, Stream& stream) {
    Numbers all;
    for (const int64_t rows : {e.N, std::min<int64_t>(e.N, 1)}) {
      for (const DType from : {type, DType::f32}) {
        const Tensor dy = normal({rows}, from, stream, 1);
        append_gradients(all, {e.N, e.C}, type, stream, [&](const Grad& dx) {
          launch(Spread{.dx = dx, .dy = dy, .factor = 0.5}, stream);
        });
      }
    }
    return all;
  });
}

TEST_F(CudaRows, SoftmaxMatchesTheCpu) {
  expect([](const Extents& e, DType type, Stream& stream) {
    const Shape shape{e.N, e.C};
    const Tensor x = normal(shape, type, stream, 1), dy = normal(shape, type, stream, 2);
    const Tensor y = unset(shape, type, stream);
    launch(SoftmaxForward{.y = y, .x = x}, stream);
    Numbers all = values(y);
    append_gradients(all, shape, type, stream, [&](const Grad& dx) {
      launch(SoftmaxBackward{.dx = dx, .dy = dy, .y = y}, stream);
    });
    launch(SoftmaxForward{.y = x, .x = x}, stream);
    launch(SoftmaxBackward{.dx = dy, .dy = dy, .y = y}, stream);
    append(all, x);
    append(all, dy);
    return all;
  });
}

TEST_F(CudaRows, SoftmaxIsStable) {
  const auto stream = cuda_stream();
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const auto row = [&](std::vector<float> x) {
    const Tensor t = make_tensor<float>({static_cast<int64_t>(x.size())}, x, *stream);
    launch(SoftmaxForward{.y = t, .x = t}, *stream);
    return values(t);
  };
  EXPECT_EQ(row({1000, 1000}), (Numbers{0.5, 0.5}));
  EXPECT_EQ(row({-1000, -3e38f, -1000}), (Numbers{0.5, 0, 0.5}));
  EXPECT_EQ(row({-infinite, 3, -infinite}), (Numbers{0, 1, 0}));
  for (const double y : row({-infinite, -infinite})) EXPECT_TRUE(std::isnan(y));
  for (const double y : row({0, infinite})) EXPECT_TRUE(std::isnan(y));
  for (const double y : row({0, std::nanf("")})) EXPECT_TRUE(std::isnan(y));
}

TEST_F(CudaRows, SquaredErrorsMatchTheCpu) {
  expect([](const Extents& e, DType type, Stream& stream) {
    const Shape shape{e.N, e.C};
    const Tensor x = normal(shape, type, stream, 1), y = normal(shape, type, stream, 2);
    const Tensor losses = unset({e.N}, DType::f32, stream);
    const Tensor scale = normal({1}, DType::f32, stream, 4);
    launch(SquaredErrorForward{.losses = losses, .x = x, .y = y}, stream);
    Numbers all = values(losses);
    SquaredErrorBackward k{.x = x, .y = y, .upstream = losses, .factor = 0.5};
    append_gradients(all, shape, type, stream, [&](const Grad& dx) {
      k.dx = dx;
      launch(k, stream);
    });
    k = {.x = x, .y = y, .upstream = scale, .scale = scale};
    append_gradients(all, shape, type, stream, [&](const Grad& dy) {
      k.dy = dy;
      launch(k, stream);
    });
    return all;
  });
}

TEST_F(CudaRows, RefuseF64) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{4, 4}, DType::f64}, *stream), y({Shape{4, 4}, DType::f64}, *stream);
  expect_error(ErrorKind::invalid, {"f64"},
               [&] { launch(SoftmaxForward{.y = y, .x = x}, *stream); });
  expect_error(ErrorKind::invalid, {"f64"}, [&] { launch(Spread{.dx = y, .dy = x}, *stream); });
}

}  // namespace
}  // namespace spool::testing
