#include "spool/kernels/reduce.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/reduce_sizes.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// Bytes of one f64 sum for each piece.
size_t piece_sum_bytes(const View& x, int64_t piece) {
  return static_cast<size_t>(ceil_div(x.numel(), piece)) * sizeof(double);
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
  int64_t granules = 0;
  for (const View& one : x) {
    all.present("x", one, floating);
    all.apart("out", out, {{"x", one}});
    granules += ceil_div(one.numel(), norm_granule);
  }
  all.elements("out", out, DType::f64, granules);
}

void SumGranules::check_arguments() const {
  const Arguments all(name);
  all.elements("out", out, DType::f64, 1);
  all.present("granules", granules, DType::f64);
  all.apart("out", out, {{"granules", granules}});
}

size_t SumAll::workspace_bytes(const CpuArchitecture&) const {
  return piece_sum_bytes(x, cpu::sum_piece);
}
size_t SumAll::workspace_bytes(const CudaArchitecture&) const {
  return piece_sum_bytes(x, cuda::sum_piece);
}

}  // namespace spool
