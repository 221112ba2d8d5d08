#include "spool/models/optimizers/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"
#include "spool/models/optimizers/host_adamw.h"
#include "spool/models/optimizers/state_share.h"
#include "spool/models/optimizers/streamed_adamw.h"

namespace spool {

namespace {

bool has_masters(const std::vector<Parameter*>& parameters, const AdamWSettings& settings) {
  return parameters.front()->data.dtype() == DType::bf16 && settings.rounding == Rounding::nearest;
}

std::vector<int64_t> share_on_device(const std::vector<Parameter*>& parameters, bool masters,
                                     const OptimizerMemory& memory) {
  std::vector<int64_t> numels;
  for (const Parameter* p : parameters) numels.push_back(p->data.numel());
  return elements_on_device(numels, /*rows=*/masters ? 3 : 2, memory.bytes_on_device);
}

std::unique_ptr<OffloadedAdamW> make_offloaded(const OptimizerMemory& memory,
                                               const std::vector<Parameter*>& parameters,
                                               bool masters) {
  check(memory.link, "adamw: optimizer state '", name(memory.state),
        "' needs a link to the host's memory");
  if (memory.state == OptimizerState::streamed) {
    return std::make_unique<StreamedAdamW>(parameters, masters, *memory.link,
                                           share_on_device(parameters, masters, memory));
  }
  return std::make_unique<HostAdamW>(parameters, masters, *memory.link);
}

}  // namespace

OptimizerState place_of_state(const std::vector<Parameter*>& parameters,
                              const AdamWSettings& settings, const OptimizerMemory& memory) {
  if (memory.state != OptimizerState::streamed || parameters.empty()) return memory.state;
  const auto share = share_on_device(parameters, has_masters(parameters, settings), memory);
  const bool all = std::ranges::equal(share, parameters, {}, {},
                                      [](const Parameter* p) { return p->data.numel(); });
  return all ? OptimizerState::device : OptimizerState::streamed;
}

AdamWOptimizer::AdamWOptimizer(std::vector<Parameter*> parameters, const AdamWSettings& settings,
                               Stream& stream, const OptimizerMemory& memory)
    : parameters_(std::move(parameters)), settings_(settings), stream_(stream) {
  check(!parameters_.empty(), "adamw: no parameters were given");
  const DType type = parameters_.front()->data.dtype();
  for (const Parameter* p : parameters_) {
    check(p->data.dtype() == type, "adamw: parameters must be all f32 or all bf16");
  }
  const bool masters = has_masters(parameters_, settings);
  if (place_of_state(parameters_, settings, memory) == OptimizerState::device) {
    allocate(masters);
  } else {
    offloaded_ = make_offloaded(memory, parameters_, masters);
  }
  const Label label{.name = "optimizer scalars", .purpose = Purpose::optimizer};
  schedule_ = Tensor({Shape{3}, DType::f32}, stream, label);
  clip_ = Tensor({Shape{3}, DType::f32}, stream, label);
  squared_ = Tensor({Shape{1}, DType::f64}, stream, label);
}

// Enqueued work must not outlive the memory that it uses.
AdamWOptimizer::~AdamWOptimizer() {
  if (offloaded_) offloaded_->wait_quietly();
}

void AdamWOptimizer::synchronize() const {
  if (!offloaded_) return;
  stream_.synchronize();
  offloaded_->synchronize();
}

void AdamWOptimizer::allocate(bool masters) {
  for (const Parameter* p : parameters_) {
    const Spec f32{p->data.shape(), DType::f32};
    const Label label{.name = p->name, .purpose = Purpose::optimizer};
    state_.m.emplace_back(f32, stream_, label);
    state_.v.emplace_back(f32, stream_, label);
    if (masters) state_.masters.emplace_back(f32, stream_, label);
  }
}

const AdamWState& AdamWOptimizer::state() const {
  check_whole();
  synchronize();
  return offloaded_ ? offloaded_->state() : state_;
}

void AdamWOptimizer::initialise() {
  initialised_ = false;
  if (offloaded_) {
    offloaded_->initialise();
  } else {
    initialise_on_device();
  }
  initialised_ = true;
}

void AdamWOptimizer::initialise_on_device() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    launch(Fill{.out = state_.m[i]}, stream_);
    launch(Fill{.out = state_.v[i]}, stream_);
    if (state_.masters.empty()) continue;
    launch(Cast{.out = state_.masters[i], .in = parameters_[i]->data}, stream_);
  }
  half_updated_ = false;
}

void AdamWOptimizer::check_whole() const {
  check(!half_updated(), "adamw: an update failed halfway, and has changed some of the parameters ",
        "and not others; call initialise() and load a checkpoint");
}

void AdamWOptimizer::check_ready() const {
  check_whole();
  const bool has_values = stream_.device().type != DeviceType::meta;
  check(initialised_ || !has_values,
        "adamw: the state is not initialised; call initialise() once the parameters ",
        "have their values, and load stored state after that");
}

void AdamWOptimizer::measure_gradients() {
  size_t next = 0;
  do {
    SquaredNorm norm{.out = Grad(squared_, /*add=*/next > 0)};
    for (; next < parameters_.size() && !norm.x.full(); ++next) {
      if (parameters_[next]->grad) norm.x.add(parameters_[next]->grad);
    }
    launch(norm, stream_);
  } while (next < parameters_.size());
  launch(ClipFactor{.clip = clip_, .squared = squared_, .limit = float(settings_.clip)}, stream_);
}

AdamW AdamWOptimizer::kernel(const Tensor& random) const {
  const bool to_nearest = settings_.rounding == Rounding::nearest;
  check(to_nearest || random, "adamw: stochastic rounding needs a random state");
  return {.tensors = {},
          .random = to_nearest ? View() : View(random),
          .schedule = schedule_,
          .clip = clip_,
          .beta1 = float(settings_.beta1),
          .beta2 = float(settings_.beta2),
          .eps = float(settings_.eps)};
}

AdamW::Entry AdamWOptimizer::entry(size_t i) const {
  const Parameter& p = *parameters_[i];
  return {.parameter = p.data,
          .master = state_.masters.empty() ? View() : View(state_.masters[i]),
          .m = state_.m.empty() ? View() : View(state_.m[i]),
          .v = state_.v.empty() ? View() : View(state_.v[i]),
          .grad = p.grad,
          .decay = p.data.shape().rank() > 1 ? float(settings_.decay) : 0.0f,
          .index = static_cast<uint32_t>(i)};
}

void AdamWOptimizer::prepare(int64_t t, double lr) {
  check(t >= 1, "adamw: step ", t, " was asked for, and steps are counted from 1");
  check_ready();
  if (offloaded_) offloaded_->end_access();
  const auto corrected = [&](double beta) {
    return static_cast<float>(1 - std::pow(beta, static_cast<double>(t)));
  };
  const std::array<float, 3> schedule{static_cast<float>(lr), corrected(settings_.beta1),
                                      corrected(settings_.beta2)};
  write<float>(schedule_, schedule);
  prepared_ = true;
}

void AdamWOptimizer::check_update() const {
  check_ready();
  check(prepared_, "adamw: the step has no number and no learning rate; call prepare() before ",
        "each update()");
  check(std::ranges::any_of(parameters_, [](const Parameter* p) { return bool(p->grad); }),
        "adamw: no parameter has a gradient; run backward of a loss that depends on them before ",
        "each update, which frees the gradients");
}

void AdamWOptimizer::update(const Tensor& random) {
  check_update();
  const AdamW k = kernel(random);
  const TraceScope scope(stream_.trace(), "optimizer");
  measure_gradients();
  try {
    update_all(k);
  } catch (...) {
    if (half_updated()) free_gradients();
    throw;
  }
  prepared_ = false;
  free_gradients();
}

void AdamWOptimizer::update_all(const AdamW& kernel) {
  if (!offloaded_) return update_on_device(kernel);
  std::vector<AdamW::Entry> all;
  for (size_t i = 0; i < parameters_.size(); ++i) all.push_back(entry(i));
  offloaded_->update(kernel, all);
}

void AdamWOptimizer::update_on_device(const AdamW& kernel) {
  half_updated_ = true;
  for (size_t next = 0; next < parameters_.size();) {
    AdamW k = kernel;
    for (; next < parameters_.size() && !k.tensors.full(); ++next) {
      if (parameters_[next]->grad) k.tensors.add(entry(next));
    }
    if (k.tensors.size() > 0) launch(k, stream_);
  }
  half_updated_ = false;
}

double cosine_schedule(int64_t step, int64_t steps, int64_t warmup, double peak, double floor) {
  const auto at = static_cast<double>(step);
  if (step < warmup) return peak * (at + 1) / static_cast<double>(warmup);
  const double span = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  const double done = std::min(1.0, (at - static_cast<double>(warmup)) / span);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace spool
