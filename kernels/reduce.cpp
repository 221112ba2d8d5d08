#include "spool/kernels/reduce.h"

#include <span>

#include "spool/kernels/arguments.h"
#include "spool/kernels/reduce_sizes.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// Bytes of one f64 sum for each piece of each tensor; a piece has at most `piece` elements.
size_t piece_sum_bytes(std::span<const View> all, int64_t piece) {
  int64_t pieces = 0;
  for (const View& x : all) pieces += ceil_div(x.numel(), piece);
  return static_cast<size_t>(pieces) * sizeof(double);
}

}  // namespace

void SumAll::check_arguments() const {
  const Arguments all(name);
  const Types sums = Types(DType::f32) | DType::f64;
  all.present("x", x, floating);
  all.elements("out", out.view, sums, 1);
  if (by) all.elements("by", by, sums, 1);
  all.apart("out", out.view, {{"x", x}});
  all.same_or_apart("out", out.view, "by", by);
}

void SquaredNorm::check_arguments() const {
  const Arguments all(name);
  all.elements("out", out.view, DType::f64, 1);
  for (const View& one : x) {
    all.present("x", one, floating);
    all.apart("out", out.view, {{"x", one}});
  }
}

size_t SumAll::workspace_bytes(const CpuArchitecture&) const {
  return piece_sum_bytes({&x, 1}, cpu::sum_piece);
}
size_t SumAll::workspace_bytes(const CudaArchitecture&) const {
  return piece_sum_bytes({&x, 1}, cuda::sum_piece);
}

size_t SquaredNorm::workspace_bytes(const CpuArchitecture&) const {
  return piece_sum_bytes(x, cpu::sum_piece);
}
size_t SquaredNorm::workspace_bytes(const CudaArchitecture&) const {
  return piece_sum_bytes(x, cuda::sum_piece);
}

}  // namespace spool
