#pragma once

// Parameters with the state that SGD needs.

#include <algorithm>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/sgd.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct SgdCase {
  std::vector<int64_t> numels = {};
  DType type = DType::f32, gradient = DType::f32;
  bool stochastic = false;  // rounding, and no masters
  float momentum = 0;
  bool nesterov = false;
  int64_t skip = 0;  // elements before each tensor, to misalign it
};

// One case for every combination of types and forms of momentum, without numels.
inline std::vector<SgdCase> sgd_cases() {
  std::vector<SgdCase> all;
  for (const SgdCase& types : {SgdCase{.type = DType::f32},
                               {.type = DType::bf16, .gradient = DType::bf16},
                               {.type = DType::bf16, .gradient = DType::f32},
                               {.type = DType::bf16, .gradient = DType::bf16, .stochastic = true},
                               {.type = DType::bf16, .stochastic = true}}) {
    for (const float momentum : {0.0f, 0.9f}) {
      for (const bool nesterov : {false, true}) {
        if (nesterov && momentum == 0) continue;
        all.push_back(types);
        all.back().momentum = momentum;
        all.back().nesterov = nesterov;
      }
    }
  }
  return all;
}

inline std::string description(const SgdCase& c) {
  return sentence(name(c.type), ", gradients ", name(c.gradient),
                  c.stochastic ? ", stochastic" : "", ", momentum ", c.momentum,
                  c.nesterov ? " of Nesterov" : "", ", skip ", c.skip);
}

class SgdTensors {
 public:
  struct Each {
    Tensor parameter, master, momentum, grad;
  };

  SgdTensors(const SgdCase& c, Stream& stream)
      : case_(c),
        all_(c.numels.size()),
        schedule_(make_tensor<float>({1}, std::vector<float>{0.1f}, stream)),
        clip_(make_tensor<float>({3}, std::vector<float>{0.5f, 2, 1}, stream)),
        random_(make_tensor<int32_t>({4}, std::vector<int32_t>{11, 22, 33, 44}, stream)) {
    for (size_t i = 0; i < all_.size(); ++i) {
      const auto make = [&](DType type, uint64_t seed, double deviation) {
        return normal({c.skip + c.numels[i], 1}, type, stream, 10 * i + seed, deviation)
            .slice({c.skip, c.skip + c.numels[i]});
      };
      Each& t = all_[i];
      t.parameter = make(c.type, 1, 1);
      if (c.momentum != 0) t.momentum = make(DType::f32, 2, 1);
      t.grad = make(c.gradient, 3, 1);
      if (c.type == DType::f32 || c.stochastic) continue;
      t.master = make(DType::f32, 4, 0);
      launch(Cast{.out = t.master, .in = t.parameter}, stream);
    }
  }

  const Tensor& clip() const { return clip_; }
  const Each& at(size_t i) const { return all_[i]; }

  // The step of tensors [begin, end), each at its own rate and decay.
  Sgd kernel(size_t begin, size_t end) const {
    Sgd k{.tensors = {},
          .random = case_.stochastic ? View(random_) : View(),
          .schedule = schedule_,
          .clip = clip_,
          .momentum = case_.momentum,
          .nesterov = case_.nesterov};
    for (size_t i = begin; i < end; ++i) {
      const Each& t = all_[i];
      k.tensors.add({.parameter = t.parameter,
                     .master = t.master,
                     .momentum = t.momentum,
                     .grad = t.grad,
                     .rate = 1.0f / static_cast<float>(1 + i % 3),
                     .decay = 0.1f * static_cast<float>(i % 2),
                     .index = static_cast<uint32_t>(i)});
    }
    return k;
  }
  Sgd kernel() const { return kernel(0, all_.size()); }

  Numbers parameters() const {
    Numbers numbers;
    for (const Each& t : all_) append(numbers, t.parameter);
    return numbers;
  }
  // Momentum and masters, which are f32.
  Numbers state() const {
    Numbers numbers;
    for (const Each& t : all_) {
      for (const Tensor& row : {t.momentum, t.master}) {
        if (row) append(numbers, row);
      }
    }
    return numbers;
  }
  Numbers everything() const {
    Numbers numbers = parameters(), more = state();
    numbers.insert(numbers.end(), more.begin(), more.end());
    return numbers;
  }

 private:
  SgdCase case_;
  std::vector<Each> all_;
  Tensor schedule_, clip_, random_;
};

// The same step, with each tensor cut into slices of at most max_numel elements.
inline Sgd in_slices(const Sgd& whole, int64_t max_numel) {
  Sgd k = whole;
  k.tensors = {};
  for (const Sgd::Entry& t : whole.tensors) {
    for (int64_t begin = 0; begin < t.grad.numel(); begin += max_numel) {
      Sgd::Entry slice = t;
      for (View* v : {&slice.parameter, &slice.master, &slice.momentum, &slice.grad}) {
        if (*v) *v = v->slice({begin, std::min(begin + max_numel, t.grad.numel())});
      }
      slice.first = begin;
      k.tensors.add(slice);
    }
  }
  return k;
}

}  // namespace spool::testing
