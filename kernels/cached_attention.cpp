#include "spool/kernels/cached_attention.h"

namespace spool {

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
