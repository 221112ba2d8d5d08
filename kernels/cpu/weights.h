#pragma once

// The update loop of kernels/weights.h.  A Rule, which has the arguments of a kernel and an entry,
// computes one element's step:
//   float take(int64_t i, float grad, float w) const;   // w after the step; updates the state

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/past_cache.h"
#include "spool/kernels/cpu/philox.h"
#include "spool/kernels/cpu/pieces.h"
#include "spool/kernels/weights.h"

namespace spool::cpu {

// put(i, get(i) after the step) for i in `range`.
template <class G, class Rule, class Get, class Put>
void update(const Rule& rule, const View& gradient, Range range, Get get, Put put) {
  const G* grad = gradient.as<G>();
  const Rule step = rule;
#pragma omp simd
  for (int64_t i = range.begin; i < range.end; ++i) {
    put(i, step.take(i, static_cast<float>(grad[i]), get(i)));
  }
}

// Rounds stochastically, as kernels/weights.h says.
inline uint16_t round_by(float x, uint32_t r) {
  constexpr uint32_t infinity = 0x7f800000, quiet = 0x400000;
  const auto u = std::bit_cast<uint32_t>(x);
  const bool overflows = ((u + r) & infinity) == infinity;  // or x is not finite
  return static_cast<uint16_t>((x != x ? u | quiet : overflows ? u : u + r) >> 16);
}

// Rounds the first n elements of a block: elements i and i + half share a random word.
inline void round_block(const float* x, const uint32_t* words, int64_t n, bf16* out) {
  constexpr int64_t half = weights_granule / 2;
  const int64_t lower = std::min(n, half);
#pragma omp simd
  for (int64_t i = 0; i < lower; ++i) out[i].bits = round_by(x[i], words[i] & 0xffff);
#pragma omp simd
  for (int64_t i = half; i < n; ++i) out[i].bits = round_by(x[i], words[i - half] >> 16);
}

template <class G, class Rule, class Kernel>
void update_rounded(const Kernel& k, const typename Kernel::Entry& t, Range range) {
  constexpr int64_t block = weights_granule, half = block / 2;
  static_assert(piece_elements % block == 0);
  const auto* random = k.random.template as<uint32_t>();
  const PhiloxRow row{
      .key = {random[0], random[1]}, .c1 = t.index, .c2 = random[2], .c3 = 0xffffffff};
  auto* parameter = t.parameter.template as<bf16>();
  for (int64_t begin = range.begin; begin < range.end; begin += block) {
    const int64_t n = std::min(block, range.end - begin);
    float updated[block];
    uint32_t words[half];
    update<G>(
        Rule(k, t), t.grad, {begin, begin + n}, [=](int64_t i) { return float(parameter[i]); },
        [&updated, begin](int64_t i, float x) { updated[i - begin] = x; });
    row.draw(static_cast<uint32_t>((t.first + begin) / 8), ceil_div<int64_t>(std::min(n, half), 4),
             words);
    round_block(updated, words, n, parameter + begin);
  }
}

// Updates masters.  Their roundings, which nothing in the optimizer reads, go past the cache.
template <class G, class Rule, class Kernel>
void update_masters(const Kernel& k, const typename Kernel::Entry& t, Range range) {
  constexpr int64_t block = weights_granule;
  const Rule rule(k, t);
  auto* w = t.master.template as<float>();
  auto* parameter = t.parameter.template as<bf16>();
  for (int64_t begin = range.begin; begin < range.end; begin += block) {
    const int64_t end = std::min(begin + block, range.end);
    bf16 rounded[block];
    update<G>(
        rule, t.grad, {begin, end}, [=](int64_t i) { return w[i]; },
        [w, &rounded, begin](int64_t i, float x) {
          w[i] = x;
          rounded[i - begin] = bf16(x);
        });
    past_cache::copy(parameter + begin, rounded, (end - begin) * int64_t{sizeof(bf16)});
  }
  past_cache::fence();
}

template <class G, class Rule, class Kernel>
void update_any(const Kernel& k, const typename Kernel::Entry& t, Range range) {
  if (k.random) return update_rounded<G, Rule>(k, t, range);
  if (t.master) return update_masters<G, Rule>(k, t, range);
  auto* w = t.parameter.template as<float>();
  update<G>(
      Rule(k, t), t.grad, range, [=](int64_t i) { return w[i]; },
      [=](int64_t i, float x) { w[i] = x; });
}

// One step of all tensors.
template <class Rule, class Kernel>
void update_weights(const Kernel& k, CpuStream& stream) {
  Pieces<decltype(k.tensors)::capacity> pieces(piece_elements);
  for (const auto& t : k.tensors) pieces.add(t.parameter.numel());
  const bool finite = k.clip.template as<float>()[2] != 0;
  if (!finite) return;
  pieces.for_each(stream, [&](size_t tensor, int64_t begin, int64_t end, int64_t) {
    const auto& t = k.tensors[tensor];
    if (t.grad.dtype() == DType::f32) return update_any<float, Rule>(k, t, {begin, end});
    update_any<bf16, Rule>(k, t, {begin, end});
  });
}

}  // namespace spool::cpu
