#pragma once

// Sums of rows, and the gradient of a sum.
//   SumRows:  y[n] (+)= factor * sum_c x[n,c]
//   Spread:   dx[i] (+)= factor * dy[i / (elements of dx for each of dy)], the gradient of a sum of
//             each row, or of all elements where dy has one
// Sums are formed in f32 (f64 for f64), in an order that depends on the shape alone.
//
// What is written shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct SumRows {
  static constexpr const char* name = "sum_rows";
  Grad y;         // (N), type of x or of its sums
  View x;         // N C elements
  int64_t C = 0;  // 0 where x has no elements: y is 0
  double factor = 1;
  void check_arguments() const;
  Cost cost() const {
    return {1.0 * static_cast<double>(x.numel()), bytes(y, x), accumulator(x.dtype())};
  }
};

struct Spread {
  static constexpr const char* name = "spread";
  Grad dx;
  View dy;  // as many elements as dx, or a number that divides theirs; type of dx or of its sums,
            // or bf16 where dx is f32
  double factor = 1;
  void check_arguments() const;
  Cost cost() const {
    return {1.0 * static_cast<double>(dx.view.numel()), bytes(dx, dy),
            accumulator(dx.view.dtype())};
  }
};

void run(const SumRows&, CpuStream&);
void run(const Spread&, CpuStream&);
void run(const SumRows&, CudaStream&);
void run(const Spread&, CudaStream&);

}  // namespace spool
