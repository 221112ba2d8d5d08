#include "spool/kernels/clip_factor.h"

#include <cmath>

namespace spool {

void run(const ClipFactor& k, CpuStream&) {
  const double norm = std::sqrt(*k.squared.as<double>());
  auto* clip = k.clip.as<float>();
  clip[0] = k.limit > 0 && norm > k.limit ? static_cast<float>(k.limit / norm) : 1.0f;
  clip[1] = static_cast<float>(norm);
  clip[2] = std::isfinite(norm) ? 1.0f : 0.0f;
}

}  // namespace spool
