// Fill, Add, Scale and Cast on cuda.

#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaElementwise : public OnCuda {};

// Whole packs and tails.
const std::vector<int64_t> counts{1, 7, 8, 9, 2048, 2055};

// Elements [skip, skip + n) of a larger tensor: skip = 1 misaligns them.
Tensor window(int64_t skip, int64_t n, DType type, Stream& stream, uint64_t seed) {
  return normal({skip + n, 1}, type, stream, seed).slice({skip, skip + n});
}

void for_every_window(const std::function<void(int64_t skip, int64_t n, DType)>& body) {
  for (const DType type : cuda_types) {
    for (const int64_t n : counts) {
      for (const int64_t skip : {0, 1}) body(skip, n, type);
    }
  }
}

TEST_F(CudaElementwise, AddMatchesTheCpu) {
  for_every_window([](int64_t skip, int64_t n, DType type) {
    for (const DType out : {type, DType::f32}) {
      for (const bool accumulate : {false, true}) {
        expect_as_on_cpu(
            [=](Stream& stream) {
              const Tensor a = window(skip, n, type, stream, 1),
                           b = window(skip, n, type, stream, 2);
              const Tensor c = normal({n}, out, stream, 3);
              launch(Add{.out = Grad(c, accumulate), .a = a, .b = b}, stream);
              launch(Add{.out = Grad(c, /*add=*/true), .a = a}, stream);
              return values(c);
            },
            tolerance(type));
      }
    }
  });
}

TEST_F(CudaElementwise, ScaleMatchesTheCpu) {
  for_every_window([](int64_t skip, int64_t n, DType type) {
    expect_as_on_cpu(
        [=](Stream& stream) {
          const Tensor a = window(skip, n, type, stream, 1),
                       by = normal({1}, DType::f32, stream, 2);
          const Tensor b = unset({n}, type, stream), c = normal({n}, type, stream, 3);
          launch(Scale{.out = b, .a = a, .factor = -2.5}, stream);
          launch(Scale{.out = Grad(c, /*add=*/true), .a = a, .factor = 3, .by = by}, stream);
          Numbers all = values(b);
          append(all, c);
          return all;
        },
        tolerance(type));
  });
}

TEST_F(CudaElementwise, CastAndFillMatchTheCpu) {
  for_every_window([](int64_t skip, int64_t n, DType type) {
    for (const DType to : cuda_types) {
      expect_as_on_cpu(
          [=](Stream& stream) {
            const Tensor in = window(skip, n, type, stream, 1), out = unset({n}, to, stream);
            launch(Cast{.out = out, .in = in}, stream);
            launch(Fill{.out = in, .value = 1.5f}, stream);
            Numbers all = values(out);
            append(all, in);
            return all;
          },
          1e-15);
    }
  });
}

TEST_F(CudaElementwise, CastsFromAndToStoredTypesMatchTheCpu) {
  for_every_window([](int64_t skip, int64_t n, DType type) {
    for (const DType stored : {DType::f16, DType::i8}) {
      expect_as_on_cpu(
          [=](Stream& stream) {
            const Tensor in = window(skip, n, type, stream, 1), back = unset({n}, type, stream);
            launch(Scale{.out = in, .a = in, .factor = 50}, stream);
            const Tensor all({Shape{skip + n, 1}, stored}, stream);
            const Tensor narrow = all.slice({skip, skip + n});
            launch(Cast{.out = narrow, .in = in}, stream);
            launch(Cast{.out = back, .in = narrow}, stream);
            Numbers found = values(narrow);
            append(found, back);
            return found;
          },
          1e-15);
    }
  });
}

// Every f16, and f32 beside each: ties, subnormals, infinity.
TEST_F(CudaElementwise, F16MatchesTheCpu) {
  expect_as_on_cpu(
      [](Stream& stream) {
        std::vector<f16> every(0x7c00);
        std::vector<float> between;
        for (size_t i = 0; i < every.size(); ++i) {
          every[i].bits = static_cast<uint16_t>(i);
          const float x = every[i];
          for (const float y : {x, std::nextafter(x, 1e9f), x * 1.0004883f}) between.push_back(y);
        }
        const Shape shape{std::ssize(between)};
        const Tensor narrow = make_tensor<f16>({0x7c00}, every, stream);
        const Tensor wide = make_tensor<float>(shape, between, stream);
        const Tensor to_f32 = unset({0x7c00}, DType::f32, stream),
                     to_f16({shape, DType::f16}, stream);
        launch(Cast{.out = to_f32, .in = narrow}, stream);
        launch(Cast{.out = to_f16, .in = wide}, stream);
        Numbers all = values(to_f32);
        for (const f16 x : read<f16>(to_f16)) all.push_back(x.bits);
        return all;
      },
      1e-15);
}

TEST_F(CudaElementwise, RefusesToComputeInTypesThatAreOnlyStored) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{4}, DType::f16}, *stream);
  expect_error(ErrorKind::invalid, {"f16", "convert it first"},
               [&] { launch(Add{.out = x, .a = x}, *stream); });
}

TEST_F(CudaElementwise, RefusesF64) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{4}, DType::f64}, *stream);
  expect_error(ErrorKind::invalid, {"f64"}, [&] { launch(Add{.out = x, .a = x}, *stream); });
}

}  // namespace
}  // namespace spool::testing
