#include "spool/kernels/adamw.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/philox.h"
#include "spool/kernels/cpu/pieces.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

// The values that are the same for all elements of a tensor.
struct Step {
  float beta1, beta2, eps, rate, inverse1, inverse2, factor, decay;

  Step(const AdamW& k, const AdamW::Entry& t)
      : beta1(k.beta1),
        beta2(k.beta2),
        eps(k.eps),
        rate(k.schedule.as<float>()[0]),
        inverse1(1 / k.schedule.as<float>()[1]),
        inverse2(1 / k.schedule.as<float>()[2]),
        factor(k.clip.as<float>()[0]),
        decay(t.decay) {}
};

// put(i, get(i) after the step) for i in `range`; updates m and v.
template <class G, class Get, class Put>
void update(const Step& s, const AdamW::Entry& t, Range range, Get get, Put put) {
  auto *m = t.m.as<float>(), *v = t.v.as<float>();
  const G* grad = t.grad.as<G>();
  const Step step = s;
#pragma omp simd
  for (int64_t i = range.begin; i < range.end; ++i) {
    const float g = step.factor * static_cast<float>(grad[i]), w = get(i);
    const float first = step.beta1 * m[i] + (1 - step.beta1) * g;
    const float second = step.beta2 * v[i] + (1 - step.beta2) * g * g;
    const float direction = first * step.inverse1 / (std::sqrt(second * step.inverse2) + step.eps);
    m[i] = first;
    v[i] = second;
    put(i, w - step.rate * (direction + step.decay * w));
  }
}

// The rounding of kernels/adamw.h.
uint16_t round_by(float x, uint32_t r) {
  constexpr uint32_t infinity = 0x7f800000, quiet = 0x400000;
  const auto u = std::bit_cast<uint32_t>(x);
  const bool overflows = ((u + r) & infinity) == infinity;  // or x is not finite
  return static_cast<uint16_t>((x != x ? u | quiet : overflows ? u : u + r) >> 16);
}

// Elements i and i + half of a block share a random word.
constexpr int64_t block = AdamW::granule, half = block / 2;

void round_block(const float* x, const uint32_t* words, int64_t n, bf16* out) {
  const int64_t lower = std::min(n, half);
#pragma omp simd
  for (int64_t i = 0; i < lower; ++i) out[i].bits = round_by(x[i], words[i] & 0xffff);
#pragma omp simd
  for (int64_t i = half; i < n; ++i) out[i].bits = round_by(x[i], words[i - half] >> 16);
}

template <class G>
void update_rounded(const AdamW& k, const AdamW::Entry& t, Range range) {
  static_assert(cpu::piece_elements % block == 0);
  const auto* random = k.random.as<uint32_t>();
  const cpu::PhiloxRow row{
      .key = {random[0], random[1]}, .c1 = t.index, .c2 = random[2], .c3 = 0xffffffff};
  auto* parameter = t.parameter.as<bf16>();
  for (int64_t begin = range.begin; begin < range.end; begin += block) {
    const int64_t n = std::min(block, range.end - begin);
    float updated[block];
    uint32_t words[half];
    update<G>(
        Step(k, t), t, {begin, begin + n}, [=](int64_t i) { return float(parameter[i]); },
        [&updated, begin](int64_t i, float x) { updated[i - begin] = x; });
    row.draw(static_cast<uint32_t>((t.first + begin) / 8), ceil_div<int64_t>(std::min(n, half), 4),
             words);
    round_block(updated, words, n, parameter + begin);
  }
}

template <class G>
void update_any(const AdamW& k, const AdamW::Entry& t, Range range) {
  if (k.random) return update_rounded<G>(k, t, range);
  auto* w = t.master ? t.master.as<float>() : t.parameter.as<float>();
  const auto get = [=](int64_t i) { return w[i]; };
  if (!t.master) {
    return update<G>(Step(k, t), t, range, get, [=](int64_t i, float x) { w[i] = x; });
  }
  auto* parameter = t.parameter.as<bf16>();
  update<G>(Step(k, t), t, range, get, [=](int64_t i, float x) {
    w[i] = x;
    parameter[i] = bf16(x);
  });
}

}  // namespace

void run(const AdamW& k, CpuStream& stream) {
  cpu::Pieces<decltype(k.tensors)::capacity> pieces(cpu::piece_elements);
  for (const AdamW::Entry& t : k.tensors) {
    check_entry(k, t);
    pieces.add(t.m.numel());
  }
  const bool finite = k.clip.as<float>()[2] != 0;
  if (!finite) return;
  pieces.for_each(stream, [&](size_t tensor, int64_t begin, int64_t end, int64_t) {
    const AdamW::Entry& t = k.tensors[tensor];
    if (t.grad.dtype() == DType::f32) return update_any<float>(k, t, {begin, end});
    update_any<bf16>(k, t, {begin, end});
  });
}

void run(const ClipFactor& k, CpuStream&) {
  const double norm = std::sqrt(*k.squared.as<double>());
  auto* clip = k.clip.as<float>();
  clip[0] = k.limit > 0 && norm > k.limit ? static_cast<float>(k.limit / norm) : 1.0f;
  clip[1] = static_cast<float>(norm);
  clip[2] = std::isfinite(norm) ? 1.0f : 0.0f;
}

}  // namespace spool
