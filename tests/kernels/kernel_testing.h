#pragma once

// Helpers of the tests of kernels: types and extents to try, tensors of NaN that show what a kernel
// does not write, and checks of every gradient and of every number of threads.

#include <functional>
#include <limits>
#include <vector>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/launch.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

using Numbers = std::vector<double>;

inline const std::vector<DType> floating{DType::f64, DType::f32, DType::bf16};

struct Extents {
  int64_t N, C;
};
inline const std::vector<Extents> extents{{1, 1}, {3, 5}, {7, 17}, {5, 1000}, {130, 300}};

// Tolerated error of a result of this type, relative to the largest value.
inline double tolerance(DType t) { return t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 6e-3; }

// A tensor of NaN.
inline Tensor unset(const Shape& shape, DType type, Stream& stream) {
  Tensor t({shape, type}, stream);
  launch(Fill{.out = t, .value = std::numeric_limits<float>::quiet_NaN()}, stream);
  return t;
}

inline Tensor integers(const Shape& shape, const std::vector<int32_t>& all, Stream& stream) {
  return make_tensor<int32_t>(shape, all, stream);
}

inline double at(const Numbers& all, int64_t i) { return all[static_cast<size_t>(i)]; }

// Expects that work(gradient) writes the wanted values, or adds them where the Grad says so.
inline void expect_gradient(const Spec& spec, Stream& stream, const Numbers& wanted,
                            const std::function<void(const Grad&)>& work) {
  SCOPED_TRACE(sentence("a gradient, ", spec));
  const double bound = tolerance(spec.dtype);
  const Tensor set = unset(spec.shape, spec.dtype, stream);
  work(set);
  EXPECT_LT(difference(values(set), wanted), bound);
  const Tensor added = normal(spec.shape, spec.dtype, stream, 77);
  Numbers sum = values(added);
  work(Grad(added, true));
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += wanted[i];
  EXPECT_LT(difference(values(added), sum), bound);
}

// Expects that work(stream) returns the same bits for any number of threads.
inline void expect_same_for_any_threads(const std::function<Numbers(Stream&)>& work) {
  CpuStream alone(64 << 20, 1);
  const Numbers wanted = work(alone);
  for (const double x : wanted) ASSERT_FALSE(std::isnan(x));
  for (const int threads : {2, 3, 5}) {
    CpuStream several(64 << 20, threads);
    for (int repeat = 0; repeat < 3; ++repeat) {
      EXPECT_EQ(work(several), wanted) << threads << " threads";
    }
  }
}

inline void append(Numbers& to, const Tensor& from) {
  const Numbers all = values(from);
  to.insert(to.end(), all.begin(), all.end());
}

}  // namespace spool::testing
