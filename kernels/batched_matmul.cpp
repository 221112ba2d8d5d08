#include "spool/kernels/batched_matmul.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/matmul_batch.h"

namespace spool {
namespace {

// Whether a factor is one matrix for all products.
bool is_shared(const View& factor) { return factor.shape().rank() == 2; }

// Matrix i of a tensor of matrices.
View matrix(const View& all, int64_t i, int64_t step) {
  const Shape& s = all.shape();
  return {all.data() + i * step * static_cast<int64_t>(size_of(all.dtype())),
          {s.rank() == 2 ? s : Shape{s[-2], s[-1]}, all.dtype()}};
}

void check_rank(const char* what, const View& v) {
  check(v.shape().rank() >= 2, "batched_matmul: ", what, " is ", v.spec(),
        ", and matrices have two dimensions or more");
}

}  // namespace

void BatchedMatmul::check_arguments() const {
  const Arguments all(name);
  all.present("a", a, floating);
  const DType type = a.dtype();
  all.present("b", b, type);
  all.present("c", c.view, gradient_of(type));
  check_rank("a", a);
  check_rank("b", b);
  check_rank("c", c.view);
  const int64_t m = M(), n = N(), k = K();
  const int64_t a_count = is_shared(a) ? 1 : count(), b_count = is_shared(b) ? 1 : count();
  all.rows(a_transposed ? "a (transposed)" : "a", a, type, a_count * (a_transposed ? k : m),
           a_transposed ? m : k);
  all.rows(b_transposed ? "b (transposed)" : "b", b, type, b_count * (b_transposed ? n : k),
           b_transposed ? k : n);
  all.apart("c", c.view, {{"a", a}, {"b", b}});
}

size_t BatchedMatmul::workspace_bytes(const CudaArchitecture&) const {
  return c.view.numel() == 0 ? 0 : cublas_workspace_bytes(MatmulBatch(*this));
}

MatmulBatch::MatmulBatch(const BatchedMatmul& k)
    : first{.c = Grad(matrix(k.c.view, 0, 0), k.c.accumulate),
            .a = matrix(k.a, 0, 0),
            .b = matrix(k.b, 0, 0),
            .a_transposed = k.a_transposed,
            .b_transposed = k.b_transposed,
            .workspace = k.workspace},
      count(k.count()),
      a_step(is_shared(k.a) ? 0 : k.M() * k.K()),
      b_step(is_shared(k.b) ? 0 : k.K() * k.N()),
      c_step(k.M() * k.N()) {}

Matmul MatmulBatch::at(int64_t i) const {
  Matmul k = first;
  if (i == 0) return k;
  k.a = matrix(first.a, i, a_step);
  k.b = matrix(first.b, i, b_step);
  k.c = Grad(matrix(first.c.view, i, c_step), first.c.accumulate);
  return k;
}

}  // namespace spool
