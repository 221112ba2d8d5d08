#include "spool/kernels/head_norm.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/head_norm_sizes.h"

namespace spool {
namespace {

void check_packed(const char* name, const View& x, const Heads& heads) {
  Arguments(name).present("x", x, floating);
  const auto [H, Hkv] = heads;
  check(H > 0 && Hkv > 0 && x.shape().row() % (H + 2 * Hkv) == 0, name, ": x is ", x.spec(),
        ", and its rows must be of ", H + 2 * Hkv, " heads");
}

}  // namespace

void HeadNormForward::check_arguments() const {
  const Arguments all(name);
  check_packed(name, x, heads);
  const HeadNormExtents e(x, heads);
  all.rows("y", y, x.dtype(), e.N, e.row());
  all.elements("r", r, accumulator(x.dtype()), e.N * e.normed);
  all.elements("query", query, x.dtype(), e.D);
  all.elements("key", key, x.dtype(), e.D);
  all.apart("y", y, {{"x", x}, {"query", query}, {"key", key}});
  all.apart("r", r, {{"y", y}, {"x", x}, {"query", query}, {"key", key}});
}

void HeadNormBackward::check_arguments() const {
  const Arguments all(name);
  check_packed(name, x, heads);
  const HeadNormExtents e(x, heads);
  const DType type = x.dtype();
  all.rows("dy", dy, type, e.N, e.row());
  all.elements("query", query, type, e.D);
  all.elements("key", key, type, e.D);
  all.elements("r", r, accumulator(type), e.N * e.normed);
  if (dx) all.rows("dx", dx.view, type, e.N, e.row());
  if (dquery) all.elements("dquery", dquery.view, gradient_of(type), e.D);
  if (dkey) all.elements("dkey", dkey.view, gradient_of(type), e.D);
  all.same_or_apart("dx", dx.view, "dy", dy);
  all.apart("dx", dx.view, {{"x", x}, {"query", query}, {"key", key}, {"r", r}});
  for (const auto& [what, gradient] :
       {Arguments::Named{"dquery", dquery.view}, {"dkey", dkey.view}}) {
    all.apart(what, gradient,
              {{"dx", dx.view}, {"dy", dy}, {"x", x}, {"query", query}, {"key", key}, {"r", r}});
  }
}

size_t HeadNormBackward::workspace_bytes(const CudaArchitecture&) const {
  if (!dquery && !dkey) return 0;
  const HeadNormExtents e(x, heads);
  return static_cast<size_t>(cuda::HeadNormGroups(e.N).count * 2 * e.D) * sizeof(float);
}

}  // namespace spool
