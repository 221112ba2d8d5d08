#pragma once

// Powers of 2 of 16 f32, and products that no compiler fuses with a sum, so that every build has
// the same bits.

#include "spool/kernels/cpu/tile_unit/vectors.h"

namespace spool::cpu::tiles {

constexpr float log2_of_e = 1.44269504f;

SPOOL_TILES_INLINE Floats times(const Floats& a, const Floats& b) { return fused(a, b, Floats{}); }

// The larger one; b if either is NaN.
SPOOL_TILES_INLINE Floats larger(const Floats& a, const Floats& b) {
#if defined(__AVX512F__) && defined(__AVX512BF16__)
  return bits_of<Floats>(_mm512_maskz_max_ps(0xffff, bits_of<__m512>(a), bits_of<__m512>(b)));
#else
  return a > b ? a : b;
#endif
}

// 2^x for x up to 127, with a relative error below 3e-7.  Below -126, where it would be a denormal
// number, it is exactly 0; of NaN it is NaN.  The polynomial interpolates 2^r, |r| <= 1/2, at the
// zeros of a Chebyshev polynomial and is exact at 0.
SPOOL_TILES_INLINE Floats two_to(const Floats& x) {
  const Floats shift = all(0x1.8p23f);  // the last bit of a sum with it stands for 1
  const Floats shifted = x + shift, n = shifted - shift, r = x - n;
  Floats p = all(1.33813021e-3f);
  p = fused(p, r, all(9.66636837e-3f));
  p = fused(p, r, all(5.55038117e-2f));
  p = fused(p, r, all(2.40223497e-1f));
  p = fused(p, r, all(6.93147182e-1f));
  p = fused(p, r, all(1));
#if defined(__AVX512F__) && defined(__AVX512BF16__)
  const __mmask16 kept = _mm512_cmp_ps_mask(bits_of<__m512>(x), _mm512_set1_ps(-126), _CMP_NLT_UQ);
  return bits_of<Floats>(_mm512_maskz_scalef_ps(kept, bits_of<__m512>(p), bits_of<__m512>(n)));
#else
  const auto power = bits_of<Floats>((bits_of<Words>(shifted) << 23) + (127u << 23));
  return x < -126 ? Floats{} : p * power;
#endif
}

}  // namespace spool::cpu::tiles
