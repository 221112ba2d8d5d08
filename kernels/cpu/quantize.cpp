#include "spool/kernels/quantize.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/nearest.h"

namespace spool {
namespace cpu {
namespace {

// The largest magnitude.  As integers, the bits of a NaN are above those of all numbers.
template <class T>
float largest_magnitude(const T* x, int64_t C) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t c = 0; c < C; ++c) {
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x[c])) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return std::bit_cast<float>(largest);
}

template <class T>
void quantize_row(const T* x, int64_t C, int8_t* q, float* scale) {
  const float unit = largest_magnitude(x, C) / 127;
  *scale = unit;
  // For a row of zeros the quotients are NaN, and become 0.
  put_all(C, Sink<int8_t, false>{q},
          [=](int64_t c) { return nearest_i8(static_cast<float>(x[c]) / unit); });
}

}  // namespace
}  // namespace cpu

void run(const Quantize& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t C = k.x.shape().row();
    const T* x = k.x.as<T>();
    auto* q = k.q.as<int8_t>();
    auto* scale = k.scale.as<float>();
    stream.parallel_for(k.x.shape().rows(), cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        cpu::quantize_row(x + n * C, C, q + n * C, scale + n);
      }
    });
  });
}

void run(const Dequantize& k, CpuStream& stream) {
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    const int64_t C = k.x.shape().row();
    const auto x = cpu::plain<T>(k.x);
    const auto* q = k.q.as<int8_t>();
    const auto* scale = k.scale.as<float>();
    stream.parallel_for(k.x.shape().rows(), cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int8_t* row = q + n * C;
        const float unit = scale[n];
        cpu::put_all(C, x.at(n * C), [=](int64_t c) { return unit * static_cast<float>(row[c]); });
      }
    });
  });
}

}  // namespace spool
