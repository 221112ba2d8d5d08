#include "spool/kernels/matmul.h"

#include <algorithm>

#include "spool/kernels/arguments.h"
#include "spool/kernels/matmul_batch.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

void check_row(const char* matrix, int64_t row, const View& v) {
  check(row == 0 || row >= v.shape().row(), "matmul: rows of ", matrix, " that are ", row,
        " elements apart, and have ", v.shape().row());
}

}  // namespace

void Matmul::check_arguments() const {
  const Arguments all(name);
  all.present("a", a, floating);
  const DType type = a.dtype();
  all.present("c", c.view, gradient_of(type));
  if (c.view.numel() == 0) return;  // nothing is computed, and shapes do not tell the extents
  const int64_t m = M(), n = N(), k = K();
  all.rows(a_transposed ? "a (transposed)" : "a", a, type, a_transposed ? k : m,
           a_transposed ? m : k);
  all.rows(b_transposed ? "b (transposed)" : "b", b, type, b_transposed ? n : k,
           b_transposed ? k : n);
  check_row("a", a_row, a);
  check_row("b", b_row, b);
  check_row("c", c_row, c.view);
  check(c_row == 0 || k > 0, "matmul: columns of a matrix, and no terms");
  if (bias) {
    all.elements("bias", bias, type, n);
    check(alpha == 1 && c_row == 0, "matmul: a bias with an alpha of ", alpha,
          " or columns of a matrix");
  }
  all.apart("c", c.view, {{"a", a}, {"b", b}, {"bias", bias}});
}

size_t Matmul::workspace_bytes(const CudaArchitecture&) const {
  return cublas_workspace_bytes(*this);
}

// Algorithms that divide the terms of a sum among blocks store the partial sums of whole tiles, in
// f32.  A few parts are enough to keep a device busy; NVIDIA recommends 32 MiB for sm_90.
size_t cublas_workspace_bytes(const MatmulBatch& all) {
  constexpr int64_t tile = 64, part_terms = 64, max_parts = 8, max_bytes = int64_t{32} << 20;
  const int64_t parts = std::min(ceil_div(all.first.K(), part_terms), max_parts);
  const int64_t sums =
      all.count * ceil_div(all.first.M(), tile) * ceil_div(all.first.N(), tile) * tile * tile;
  return static_cast<size_t>(
      std::min(parts * sums * static_cast<int64_t>(sizeof(float)), max_bytes));
}

}  // namespace spool
