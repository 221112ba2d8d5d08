#include "spool/models/optimizers/sgd.h"

#include "spool/models/optimizers/state_share.h"

namespace spool {
namespace {

void check_numbers(const SgdSettings& s) {
  check(s.momentum >= 0 && s.momentum < 1, "sgd: the momentum must be in [0, 1), not ", s.momentum);
  check(!s.nesterov || s.momentum > 0, "sgd: nesterov is a form of momentum, which is 0; set it, ",
        "to 0.9 for example");
}

View view_of(const std::vector<Tensor>& row, size_t i) { return row.empty() ? View() : row[i]; }

}  // namespace

OptimizerState place_of_state(const std::vector<Parameter*>& parameters, const SgdSettings& s,
                              const OptimizerMemory& memory) {
  const size_t rows = size_t{s.momentum > 0} + size_t{has_masters(parameters, s.rounding)};
  const OptimizerState place = place_of_rows(parameters, rows, memory);
  check(place == OptimizerState::device, "sgd: optimizer state '", name(memory.state),
        "' is for AdamW; SGD's state, momentum and f32 masters, stays on the device");
  return place;
}

SgdOptimizer::SgdOptimizer(std::vector<Parameter*> all, const SgdSettings& settings, Stream& stream,
                           const OptimizerMemory& memory)
    : ClippedOptimizer("sgd", std::move(all), clipped_settings(settings),
                       /*scheduled=*/1, stream),
      settings_(settings) {
  check_numbers(settings);
  place_of_state(parameters(), settings, memory);
  if (settings.momentum > 0) momentum_ = make_row();
  if (has_masters()) masters_ = make_row();
}

std::vector<StateTensors> SgdOptimizer::state() {
  make_ready();
  std::vector<StateTensors> rows;
  if (!momentum_.empty()) rows.push_back({"momentum", momentum_});
  if (!masters_.empty()) rows.push_back({"master", masters_});
  return rows;
}

void SgdOptimizer::initialise_state() {
  set_to_zero(momentum_);
  set_to_parameters(masters_);
}

std::vector<float> SgdOptimizer::schedule_at(int64_t, double learning_rate) const {
  return {static_cast<float>(learning_rate)};
}

Sgd::Entry SgdOptimizer::entry(size_t i) const {
  const Parameter& p = *parameters()[i];
  return {.parameter = p.data,
          .master = view_of(masters_, i),
          .momentum = view_of(momentum_, i),
          .grad = p.grad,
          .rate = rate_of(i).rate,
          .decay = rate_of(i).decay,
          .index = static_cast<uint32_t>(i)};
}

void SgdOptimizer::update_all(const Tensor& random) {
  const Sgd kernel{.tensors = {},
                   .random = random_of(random),
                   .schedule = schedule(),
                   .clip = clip(),
                   .momentum = static_cast<float>(settings_.momentum),
                   .nesterov = settings_.nesterov};
  launch_all(kernel, [this](size_t i) { return entry(i); });
}

}  // namespace spool
