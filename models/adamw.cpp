#include "spool/models/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "spool/kernels/adamw.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"

namespace spool {

AdamWOptimizer::AdamWOptimizer(std::vector<Parameter*> parameters, const AdamWSettings& settings,
                               Stream& stream)
    : parameters_(std::move(parameters)), settings_(settings), stream_(stream) {
  for (const Parameter* p : parameters_) {
    const Spec f32{p->data.shape(), DType::f32};
    const Label label{.name = p->name, .purpose = Purpose::optimizer};
    m_.emplace_back(f32, stream, label);
    v_.emplace_back(f32, stream, label);
    if (p->data.dtype() == DType::bf16) masters_.emplace_back(f32, stream, label);
  }
  check(masters_.empty() || masters_.size() == parameters_.size(),
        "adamw: parameters must be all f32 or all bf16");
  const Label label{.name = "optimizer scalars", .purpose = Purpose::optimizer};
  schedule_ = Tensor({Shape{3}, DType::f32}, stream, label);
  clip_ = Tensor({Shape{3}, DType::f32}, stream, label);
  squared_ = Tensor({Shape{1}, DType::f64}, stream, label);
}

void AdamWOptimizer::initialise() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    launch(Fill{.out = m_[i]}, stream_);
    launch(Fill{.out = v_[i]}, stream_);
    if (!masters_.empty()) launch(Cast{.out = masters_[i], .in = parameters_[i]->data}, stream_);
  }
}

void AdamWOptimizer::measure_gradients() {
  launch(Fill{.out = squared_}, stream_);
  for (const Parameter* p : parameters_) {
    if (p->grad) launch(SquaredNorm{.out = add_to(squared_), .x = p->grad}, stream_);
  }
  launch(ClipFactor{.clip = clip_, .squared = squared_, .limit = float(settings_.clip)}, stream_);
}

void AdamWOptimizer::prepare(int64_t t, double lr) {
  const auto corrected = [&](double beta) {
    return static_cast<float>(1 - std::pow(beta, static_cast<double>(t)));
  };
  const std::array<float, 3> schedule{static_cast<float>(lr), corrected(settings_.beta1),
                                      corrected(settings_.beta2)};
  write<float>(schedule_, schedule);
}

void AdamWOptimizer::update() {
  measure_gradients();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = *parameters_[i];
    if (!p.grad) continue;
    launch(AdamW{.parameter = p.data,
                 .master = masters_.empty() ? View() : View(masters_[i]),
                 .m = m_[i],
                 .v = v_[i],
                 .grad = p.grad,
                 .schedule = schedule_,
                 .clip = clip_,
                 .beta1 = float(settings_.beta1),
                 .beta2 = float(settings_.beta2),
                 .eps = float(settings_.eps),
                 .decay = p.data.shape().rank() > 1 ? float(settings_.decay) : 0.0f},
           stream_);
    p.grad = {};
  }
}

double cosine_schedule(int64_t step, int64_t steps, int64_t warmup, double peak, double floor) {
  const auto at = static_cast<double>(step);
  if (step < warmup) return peak * (at + 1) / static_cast<double>(warmup);
  const double span = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  const double done = std::min(1.0, (at - static_cast<double>(warmup)) / span);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace spool
