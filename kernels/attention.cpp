#include "spool/kernels/attention.h"

namespace spool {
namespace {

// Triples of a query, a key it sees, and a head.
double pairs(const View& lse) {
  const auto T = static_cast<double>(lse.shape().row()), all = static_cast<double>(lse.numel());
  return all * (T + 1) / 2;
}

double head_size(const View& y, const Heads& heads) {
  return static_cast<double>(y.shape().row() / heads.query);
}

}  // namespace

AttentionExtents::AttentionExtents(const View& qkv, const View& y, Heads heads)
    : B(qkv.shape()[0]), T(qkv.shape()[1]), H(heads.query), Hkv(heads.key) {
  check(H > 0 && Hkv > 0 && H % Hkv == 0, "attention: ", H, " query heads for ", Hkv, " key heads");
  D = y.shape().row() / H;
  check(qkv.shape() == Shape{B, T, packed() * D} && y.shape() == Shape{B, T, H * D},
        "attention: ", qkv.shape(), " of ", H, " and ", Hkv, " heads to ", y.shape());
}

Cost AttentionForward::cost() const {
  return {pairs(lse) * (4 * head_size(y, heads) + exponential_flops), bytes(y, lse, qkv),
          qkv.dtype()};
}

Cost AttentionBackward::cost() const {
  return {pairs(lse) * (10 * head_size(y, heads) + exponential_flops), bytes(dqkv, dy, qkv, y, lse),
          qkv.dtype()};
}

}  // namespace spool
