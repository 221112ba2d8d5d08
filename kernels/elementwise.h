// Public: one of the headers of docs/public-headers.md.
#pragma once

// Element by element, in all types that are computed in; a + b is formed in f32 (f64 for f64):
// out[i] = value                             Fill
// out[i] (+)= a[i] + b[i]                    Add; without b: out (+)= a
// out[i] (+)= factor * by[0] * a[i]          Scale; without `by`: factor * a
// out[i] = in[i], to the type of out         Cast
//
// Cast also converts from and to the storage types f16 and i8.  It rounds to nearest, ties to even,
// f64 through f32; i8 saturates at -128 and 127, and NaN becomes 0.
//
// `out` may be a, or b, of the same type; otherwise it shares no memory with other arguments.

#include "spool/kernels/launch.h"

namespace spool {

struct Fill {
  static constexpr const char* name = "fill";
  View out;
  float value = 0;
  void check_arguments() const;
  Cost cost() const { return {0, bytes(out)}; }
};

struct Add {
  static constexpr const char* name = "add";
  Grad out;     // type of a, or f32
  View a;       // same number of elements
  View b = {};  // same number of elements, type of a
  void check_arguments() const;
  Cost cost() const {
    return {2.0 * static_cast<double>(a.numel()), bytes(out, a, b), accumulator(a.dtype())};
  }
};

struct Scale {
  static constexpr const char* name = "scale";
  Grad out;  // type of a
  View a;
  double factor = 1;
  View by = {};  // (1), f32, or f64 where a is
  void check_arguments() const;
  Cost cost() const {
    return {2.0 * static_cast<double>(a.numel()), bytes(out, a), accumulator(a.dtype())};
  }
};

struct Cast {
  static constexpr const char* name = "cast";
  View out, in;  // same number of elements
  void check_arguments() const;
  Cost cost() const { return {0, bytes(out, in)}; }
};

void run(const Fill&, CpuStream&);
void run(const Add&, CpuStream&);
void run(const Scale&, CpuStream&);
void run(const Cast&, CpuStream&);
void run(const Fill&, CudaStream&);
void run(const Add&, CudaStream&);
void run(const Scale&, CudaStream&);
void run(const Cast&, CudaStream&);

}  // namespace spool
