#include "spool/kernels/cached_attention.h"

namespace spool {

CachedExtents::CachedExtents(const CachedAttention& k)
    : AttentionExtents(k.qkv, k.y, k.heads), P(k.keys.shape()[2]) {
  check(k.keys.spec() == k.values.spec() && k.keys.shape() == Shape{B, Hkv, P, D} &&
            k.keys.dtype() == k.qkv.dtype(),
        "cached attention: ", k.qkv.spec(), " with keys ", k.keys.spec(), " and values ",
        k.values.spec());
  check(k.position >= 0 && k.position + T <= P, "cached attention: ", T, " tokens from position ",
        k.position, " on, in a cache of ", P);
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

}  // namespace spool
