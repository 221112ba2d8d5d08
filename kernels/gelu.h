#pragma once

// Gaussian error linear unit (Hendrycks, Gimpel 2016).
//   tanh form:  y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   exact:      y = x/2 (1 + erf(x / sqrt 2))
// dx (+)= dy * y'(x)

#include "spool/kernels/launch.h"
#include "spool/runtime/names.h"

namespace spool {

enum class GeluForm : uint8_t { tanh, exact };
template <>
inline constexpr std::array enumerator_names<GeluForm>{"tanh", "exact"};

struct GeluForward {
  static constexpr const char* name = "gelu_forward";
  View y, x;
  GeluForm form = GeluForm::tanh;
  Cost cost() const {
    return {20.0 * static_cast<double>(x.numel()), bytes(y, x), accumulator(x.dtype())};
  }
};

struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  Grad dx;
  View dy, x;
  GeluForm form = GeluForm::tanh;
  Cost cost() const {
    return {28.0 * static_cast<double>(x.numel()), bytes(dx, dy, x), accumulator(x.dtype())};
  }
};

void run(const GeluForward&, CpuStream&);
void run(const GeluBackward&, CpuStream&);
void run(const GeluForward&, CudaStream&);
void run(const GeluBackward&, CudaStream&);

}  // namespace spool
