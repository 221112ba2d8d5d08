#include "spool/runtime/numbers.h"

#include <algorithm>
#include <cmath>

#include "spool/runtime/check.h"
#include "spool/runtime/random.h"

namespace spool::numbers {

Tensor normal(const Shape& shape, DType dtype, Stream& stream, uint64_t seed, double deviation,
              double mean) {
  Random random(seed);
  std::vector<double> f64(static_cast<size_t>(shape.numel()));
  for (double& x : f64) x = mean + deviation * random.normal();
  const std::vector<float> f32(f64.begin(), f64.end());
  const std::vector<bf16> half(f32.begin(), f32.end());
  if (dtype == DType::f64) return make_tensor<double>(shape, f64, stream);
  if (dtype == DType::f32) return make_tensor<float>(shape, f32, stream);
  return make_tensor<bf16>(shape, half, stream);
}

std::vector<double> values(const Tensor& t) {
  const auto as_double = [](const auto& v) { return std::vector<double>(v.begin(), v.end()); };
  if (t.dtype() == DType::f64) return read<double>(t);
  if (t.dtype() == DType::f32) return as_double(read<float>(t));
  if (t.dtype() == DType::f16) return as_double(read<f16>(t));
  if (t.dtype() == DType::i8) return as_double(read<int8_t>(t));
  return as_double(read<bf16>(t));
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  check(a.size() == b.size(), "difference: ", a.size(), " values against ", b.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::nan("");
    largest = std::max(largest, std::fabs(b[i]));
    worst = std::max(worst, std::fabs(a[i] - b[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace spool::numbers
