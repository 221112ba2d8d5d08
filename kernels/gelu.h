#pragma once

// Gaussian error linear unit (Hendrycks, Gimpel 2016).
//   tanh form:  y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//   exact:      y = x/2 (1 + erf(x / sqrt 2))
// and backward dx (+)= dy y'(x).
// With a bias (C), x + bias takes the place of x (N, C), and dbias[c] (+)= sum_n dy[n,c] y'(n,c),
// summed before dx is rounded.  y may be x, and dx may be dy or x, of the same type; otherwise what
// is written shares no memory with other arguments.

#include "spool/kernels/launch.h"
#include "spool/runtime/names.h"

namespace spool {

enum class GeluForm : uint8_t { tanh, exact };
template <>
inline constexpr std::array enumerator_names<GeluForm>{"tanh", "exact"};

struct GeluForward {
  static constexpr const char* name = "gelu_forward";
  View y, x;       // same number of elements and type
  View bias = {};  // (C), of that type; absent: 0
  GeluForm form = GeluForm::tanh;
  void check_arguments() const;
  Cost cost() const {
    return {20.0 * static_cast<double>(x.numel()), bytes(y, x, bias), accumulator(x.dtype())};
  }
};

struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  Grad dx;          // type of x, or f32; with a bias, may be absent
  View dy, x;       // same number of elements and type
  View bias = {};   // as in forward
  Grad dbias = {};  // (C), type of x, or f32; only with a bias, and may be absent
  GeluForm form = GeluForm::tanh;
  View workspace = {};
  void check_arguments() const;
  Cost cost() const {
    return {28.0 * static_cast<double>(x.numel()), bytes(dx, dbias, dy, x, bias),
            accumulator(x.dtype())};
  }
  size_t workspace_bytes(const CpuArchitecture&) const;
  size_t workspace_bytes(const CudaArchitecture&) const;
};

void run(const GeluForward&, CpuStream&);
void run(const GeluBackward&, CpuStream&);
void run(const GeluForward&, CudaStream&);
void run(const GeluBackward&, CudaStream&);

}  // namespace spool
