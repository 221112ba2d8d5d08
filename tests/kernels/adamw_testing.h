#pragma once

// Parameters with the state that AdamW needs.

#include <algorithm>

#include "spool/kernels/adamw.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct AdamWCase {
  std::vector<int64_t> numels = {};
  DType type = DType::f32, gradient = DType::f32;
  bool stochastic = false;  // rounding, and no masters
  int64_t skip = 0;         // elements before each tensor, to misalign it
};

// One case for every combination of types, without numels.
inline const std::vector<AdamWCase> adamw_cases{
    {.type = DType::f32},
    {.type = DType::bf16, .gradient = DType::bf16},
    {.type = DType::bf16, .gradient = DType::f32},
    {.type = DType::bf16, .gradient = DType::bf16, .stochastic = true},
    {.type = DType::bf16, .gradient = DType::f32, .stochastic = true}};

class AdamWTensors {
 public:
  AdamWTensors(const AdamWCase& c, Stream& stream)
      : all_(c.numels.size()),
        schedule_(make_tensor<float>({3}, std::vector<float>{0.1f, 0.1f, 0.05f}, stream)),
        clip_(make_tensor<float>({3}, std::vector<float>{0.5f, 2, 1}, stream)),
        random_(make_tensor<int32_t>({4}, std::vector<int32_t>{11, 22, 33, 44}, stream)),
        stochastic_(c.stochastic) {
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto make = [&](DType type, uint64_t seed, double deviation) {
        return normal({c.skip + c.numels[i], 1}, type, stream, 10 * i + seed, deviation)
            .slice({c.skip, c.skip + c.numels[i]});
      };
      Each& t = all_[i];
      t.parameter = make(c.type, 1, 1);
      t.m = make(DType::f32, 2, 0);
      t.v = make(DType::f32, 3, 0);
      t.grad = make(c.gradient, 4, 1);
      if (c.type == DType::f32 || c.stochastic) continue;
      t.master = make(DType::f32, 5, 0);
      launch(Cast{.out = t.master, .in = t.parameter}, stream);
    }
  }

  const Tensor& clip() const { return clip_; }
  const Tensor& random() const { return random_; }

  // The step of tensors [begin, end).
  AdamW kernel(size_t begin, size_t end) const {
    AdamW k{.tensors = {},
            .random = stochastic_ ? View(random_) : View(),
            .schedule = schedule_,
            .clip = clip_};
    for (size_t i = begin; i < end; ++i) {
      const Each& t = all_[i];
      k.tensors.add({.parameter = t.parameter,
                     .master = t.master,
                     .m = t.m,
                     .v = t.v,
                     .grad = t.grad,
                     .decay = 0.1f * static_cast<float>(i % 2),
                     .index = static_cast<uint32_t>(i)});
    }
    return k;
  }
  AdamW kernel() const { return kernel(0, all_.size()); }

  Numbers parameters() const {
    Numbers numbers;
    for (const Each& t : all_) append(numbers, t.parameter);
    return numbers;
  }
  // Moments and masters, which are f32.
  Numbers state() const {
    Numbers numbers;
    for (const Each& t : all_) {
      append(numbers, t.m);
      append(numbers, t.v);
      if (t.master) append(numbers, t.master);
    }
    return numbers;
  }
  Numbers everything() const {
    Numbers numbers = parameters(), more = state();
    numbers.insert(numbers.end(), more.begin(), more.end());
    return numbers;
  }

 private:
  struct Each {
    Tensor parameter, master, m, v, grad;
  };
  std::vector<Each> all_;
  Tensor schedule_, clip_, random_;
  bool stochastic_;
};

// The same step, with each tensor cut into slices of at most max_numel elements.
inline AdamW in_slices(const AdamW& whole, int64_t max_numel) {
  AdamW k = whole;
  k.tensors = {};
  for (const AdamW::Entry& t : whole.tensors) {
    for (int64_t begin = 0; begin < t.m.numel(); begin += max_numel) {
      AdamW::Entry slice = t;
      for (View* v : {&slice.parameter, &slice.master, &slice.m, &slice.v, &slice.grad}) {
        if (*v) *v = v->slice({begin, std::min(begin + max_numel, t.m.numel())});
      }
      slice.first = begin;
      k.tensors.add(slice);
    }
  }
  return k;
}

// A step with a known result: gradients and moments are 0, and each weight loses 1/1024 of itself,
// which f32 holds exactly.
struct ExactStep {
  Tensor parameter, m, v, grad, schedule, clip, random;
  uint32_t index = 7;

  ExactStep(const Tensor& weights, Stream& stream, float rate = 0x1p-10f)
      : parameter(weights),
        m(normal(weights.shape(), DType::f32, stream, 0, 0)),
        v(normal(weights.shape(), DType::f32, stream, 0, 0)),
        grad(normal(weights.shape(), DType::bf16, stream, 0, 0)),
        schedule(make_tensor<float>({3}, std::vector<float>{rate, 0.1f, 0.05f}, stream)),
        clip(make_tensor<float>({3}, std::vector<float>{1, 0, 1}, stream)) {
    set_random_state({11, 22, 33, 44}, stream);
  }
  void set_random_state(const std::vector<int32_t>& state, Stream& stream) {
    random = make_tensor<int32_t>({4}, state, stream);
  }
  AdamW kernel() const {
    return {
        .tensors =
            {{.parameter = parameter, .m = m, .v = v, .grad = grad, .decay = 1, .index = index}},
        .random = random,
        .schedule = schedule,
        .clip = clip};
  }
  // The parameter after a step, which is undone.
  Numbers take(Stream& stream) const {
    const Tensor before({parameter.shape(), DType::bf16}, stream);
    launch(Cast{.out = before, .in = parameter}, stream);
    launch(kernel(), stream);
    const Numbers after = values(parameter);
    launch(Cast{.out = parameter, .in = before}, stream);
    return after;
  }
};

}  // namespace spool::testing
