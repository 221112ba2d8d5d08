#include "spool/models/optimizers/clipped_optimizer.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "spool/kernels/clip_factor.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"

namespace spool {

void Optimizer::set_steps(int64_t steps) {
  check(steps >= 0, "an optimizer cannot have done ", steps,
        " steps; a run that begins has done 0");
  steps_ = steps;
}

ClippedOptimizer::ClippedOptimizer(const char* who, std::vector<Parameter*> parameters,
                                   const ClippedSettings& settings, int64_t scheduled,
                                   Stream& stream)
    : who_(who),
      parameters_(std::move(parameters)),
      limit_(static_cast<float>(settings.clip)),
      rounding_(settings.rounding),
      stream_(stream) {
  check(!parameters_.empty(), who_, ": no parameters were given");
  const DType type = parameters_.front()->data.dtype();
  for (const Parameter* p : parameters_) {
    check(p->data.dtype() == type, who_, ": parameters must be all f32 or all bf16");
  }
  check(std::isfinite(settings.clip) && settings.clip >= 0, who_,
        ": the limit of the gradients' norm must be a finite number, 0 for none, not ",
        settings.clip);
  rates_ = rates_of(parameters_, settings.groups, settings.decay, who_);
  const Label label{.name = "optimizer scalars", .purpose = Purpose::optimizer};
  schedule_ = Tensor({Shape{scheduled}, DType::f32}, stream, label);
  clip_ = Tensor({Shape{3}, DType::f32}, stream, label);
  squared_ = Tensor({Shape{1}, DType::f64}, stream, label);
}

void ClippedOptimizer::initialise() {
  initialised_ = false;
  prepared_ = 0;
  initialise_state();
  half_updated_ = false;
  initialised_ = true;
  set_steps(0);
}

void ClippedOptimizer::make_ready() {
  check_whole();
  if (initialised_) return;
  initialise_state();
  initialised_ = true;
}

void ClippedOptimizer::check_whole() const {
  check(!half_updated(), who_,
        ": an update failed halfway, and has changed some of the parameters ",
        "and not others; call initialise() and load a checkpoint");
}

void ClippedOptimizer::prepare(int64_t t, double learning_rate) {
  check(t >= 1, who_, ": step ", t, " was asked for, and steps are counted from 1");
  make_ready();
  begin_step();
  write<float>(schedule_, schedule_at(t, learning_rate));
  prepared_ = t;
}

void ClippedOptimizer::check_update() const {
  check_whole();
  check(prepared_ > 0, who_,
        ": the step has no number and no learning rate; call prepare() before ",
        "each update(), or step() for both");
  check(std::ranges::any_of(parameters_, [](const Parameter* p) { return bool(p->grad); }), who_,
        ": no parameter has a gradient; run backward of a loss that depends on them before ",
        "each update, which frees the gradients");
  for (const Parameter* p : parameters_) {
    check(!p->grad || p->grad.numel() == p->data.numel(), who_, ": the gradient of ", p->name,
          " is ", p->grad.spec(), ", and the parameter is ", p->data.spec());
  }
}

void ClippedOptimizer::update(const Tensor& random) {
  check_update();
  (void)random_of(random);
  const TraceScope scope(stream_.trace(), "optimizer");
  measure_gradients();
  try {
    update_all(random);
  } catch (...) {
    if (half_updated()) free_gradients();
    throw;
  }
  set_steps(prepared_);
  prepared_ = 0;
  free_gradients();
}

View ClippedOptimizer::random_of(const Tensor& random) const {
  if (rounding_ == Rounding::nearest) return {};
  check(bool(random), who_, ": stochastic rounding needs a random state");
  return random;
}

void ClippedOptimizer::measure_gradients() {
  size_t next = 0;
  do {
    SquaredNorm norm{.out = Grad(squared_, /*add=*/next > 0)};
    for (; next < parameters_.size() && !norm.x.full(); ++next) {
      if (parameters_[next]->grad) norm.x.add(parameters_[next]->grad);
    }
    launch(norm, stream_);
  } while (next < parameters_.size());
  launch(ClipFactor{.clip = clip_, .squared = squared_, .limit = limit_}, stream_);
}

std::vector<Tensor> ClippedOptimizer::make_row() const {
  std::vector<Tensor> row;
  for (const Parameter* p : parameters_) {
    row.emplace_back(Spec{p->data.shape(), DType::f32}, stream_,
                     Label{.name = p->name, .purpose = Purpose::optimizer});
  }
  return row;
}

void ClippedOptimizer::set_to_zero(const std::vector<Tensor>& row) const {
  for (const Tensor& t : row) launch(Fill{.out = t}, stream_);
}

void ClippedOptimizer::set_to_parameters(const std::vector<Tensor>& row) const {
  for (size_t i = 0; i < row.size(); ++i) {
    launch(Cast{.out = row[i], .in = parameters_[i]->data}, stream_);
  }
}

}  // namespace spool
