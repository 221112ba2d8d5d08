#include "spool/kernels/cached_attention.h"

#include "spool/kernels/arguments.h"
#include "spool/kernels/cached_attention_sizes.h"

namespace spool {

CachedExtents::CachedExtents(const CachedAttention& k)
    : AttentionExtents(k.qkv, k.y, k.heads), P(k.keys.shape()[2]) {
  check(k.keys.spec() == k.values.spec() && k.keys.shape() == Shape{B, Hkv, P, D} &&
            k.keys.dtype() == k.qkv.dtype(),
        "cached attention: qkv ", k.qkv.spec(), " does not fit keys ", k.keys.spec(),
        " and values ", k.values.spec());
  check(k.position >= 0 && k.position + T <= P, "cached attention: ", T, " tokens from position ",
        k.position, " on do not fit a cache of ", P, " rows");
}

void CachedAttention::check_arguments() const {
  const Arguments all(name);
  all.present("qkv", qkv, floating);
  all.present("y", y, qkv.dtype());
  all.present("keys", keys, qkv.dtype());
  all.present("values", values, qkv.dtype());
  const CachedExtents e(*this);
  if (first) all.elements("first", first, DType::i32, e.B);
  if (place) all.elements("place", place, DType::i32, 1);
  check(!place || e.T == 1, "cached attention: ", e.T, " tokens at a place that is read on the ",
        "device; there must be one");
  all.apart("y", y,
            {{"keys", keys}, {"values", values}, {"qkv", qkv}, {"first", first}, {"place", place}});
  all.apart("keys", keys, {{"values", values}, {"qkv", qkv}, {"first", first}, {"place", place}});
  all.apart("values", values, {{"qkv", qkv}, {"first", first}, {"place", place}});
}

Cost CachedAttention::cost() const {
  const auto n = static_cast<double>(y.shape()[1]), before = static_cast<double>(position);
  const auto D = static_cast<double>(keys.shape().row());
  const double queries = static_cast<double>(y.numel()) / D;  // of all heads
  const double pairs = queries * (before + (n + 1) / 2);
  const double rows = (before + n) / static_cast<double>(keys.shape()[2]);
  return {pairs * (4 * D + exponential_flops), bytes(y, qkv) + rows * bytes(keys, values),
          qkv.dtype()};
}

size_t CachedAttention::workspace_bytes(const CudaArchitecture&) const {
  const CachedExtents e(*this);
  const int64_t max_pieces = cuda::count_pieces(e.P, e.P);
  if (e.T >= cuda::many_queries || max_pieces <= 1) return 0;
  return static_cast<size_t>(e.B * e.H * e.T * max_pieces * cuda::piece_floats(e.D)) *
         sizeof(float);
}

}  // namespace spool
