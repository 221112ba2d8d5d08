#include "spool/models/optimizers/adamw.h"

#include <algorithm>
#include <cmath>

#include "spool/models/optimizers/host_adamw.h"
#include "spool/models/optimizers/state_share.h"
#include "spool/models/optimizers/streamed_adamw.h"

namespace spool {

namespace {

size_t rows_of(const std::vector<Parameter*>& parameters, const AdamWSettings& settings) {
  return has_masters(parameters, settings.rounding) ? 3 : 2;
}

std::unique_ptr<OffloadedAdamW> make_offloaded(const OptimizerMemory& memory,
                                               const std::vector<Parameter*>& parameters,
                                               bool masters) {
  check(memory.link, "adamw: optimizer state '", name(memory.state),
        "' needs a link to the host's memory");
  if (memory.state == OptimizerState::streamed) {
    return std::make_unique<StreamedAdamW>(
        parameters, masters, *memory.link,
        elements_on_device(numels_of(parameters), /*rows=*/masters ? 3 : 2,
                           memory.bytes_on_device));
  }
  return std::make_unique<HostAdamW>(parameters, masters, *memory.link);
}

void check_numbers(const AdamWSettings& s) {
  const auto is_beta = [](double x) { return x >= 0 && x < 1; };
  check(is_beta(s.beta1) && is_beta(s.beta2), "adamw: beta1 and beta2 must be in [0, 1), not ",
        s.beta1, " and ", s.beta2);
  check(std::isfinite(s.eps) && s.eps >= 0, "adamw: eps must be a finite number from 0 on, not ",
        s.eps);
}

}  // namespace

OptimizerState place_of_state(const std::vector<Parameter*>& parameters,
                              const AdamWSettings& settings, const OptimizerMemory& memory) {
  return place_of_rows(parameters, rows_of(parameters, settings), memory);
}

AdamWOptimizer::AdamWOptimizer(std::vector<Parameter*> all, const AdamWSettings& settings,
                               Stream& stream, const OptimizerMemory& memory)
    : ClippedOptimizer("adamw", std::move(all), clipped_settings(settings),
                       /*scheduled=*/3, stream),
      settings_(settings) {
  check_numbers(settings);
  if (place_of_state(parameters(), settings, memory) != OptimizerState::device) {
    offloaded_ = make_offloaded(memory, parameters(), has_masters());
    return;
  }
  state_.m = make_row();
  state_.v = make_row();
  if (has_masters()) state_.masters = make_row();
}

// Enqueued work must not outlive the memory that it uses.
AdamWOptimizer::~AdamWOptimizer() {
  if (offloaded_) offloaded_->wait_quietly();
}

void AdamWOptimizer::synchronize() const {
  if (!offloaded_) return;
  stream().synchronize();
  offloaded_->synchronize();
}

const AdamWState& AdamWOptimizer::open_state() {
  make_ready();
  synchronize();
  return offloaded_ ? offloaded_->state() : state_;
}

std::vector<StateTensors> AdamWOptimizer::state() {
  const AdamWState& state = open_state();
  std::vector<StateTensors> rows{{"m", state.m}, {"v", state.v}};
  if (!state.masters.empty()) rows.push_back({"master", state.masters});
  return rows;
}

void AdamWOptimizer::initialise_state() {
  if (offloaded_) return offloaded_->initialise();
  set_to_zero(state_.m);
  set_to_zero(state_.v);
  set_to_parameters(state_.masters);
}

std::vector<float> AdamWOptimizer::schedule_at(int64_t t, double learning_rate) const {
  const auto corrected = [&](double beta) {
    return static_cast<float>(1 - std::pow(beta, static_cast<double>(t)));
  };
  return {static_cast<float>(learning_rate), corrected(settings_.beta1),
          corrected(settings_.beta2)};
}

void AdamWOptimizer::begin_step() {
  if (offloaded_) offloaded_->end_access();
}

AdamW AdamWOptimizer::kernel(const Tensor& random) const {
  return {.tensors = {},
          .random = random_of(random),
          .schedule = schedule(),
          .clip = clip(),
          .beta1 = float(settings_.beta1),
          .beta2 = float(settings_.beta2),
          .eps = float(settings_.eps)};
}

AdamW::Entry AdamWOptimizer::entry(size_t i) const {
  const Parameter& p = *parameters()[i];
  return {.parameter = p.data,
          .master = state_.masters.empty() ? View() : View(state_.masters[i]),
          .m = state_.m.empty() ? View() : View(state_.m[i]),
          .v = state_.v.empty() ? View() : View(state_.v[i]),
          .grad = p.grad,
          .rate = rate_of(i).rate,
          .decay = rate_of(i).decay,
          .index = static_cast<uint32_t>(i)};
}

void AdamWOptimizer::update_all(const Tensor& random) {
  if (!offloaded_) return launch_all(kernel(random), [this](size_t i) { return entry(i); });
  std::vector<AdamW::Entry> all;
  for (size_t i = 0; i < parameters().size(); ++i) all.push_back(entry(i));
  offloaded_->update(kernel(random), all);
}

}  // namespace spool
