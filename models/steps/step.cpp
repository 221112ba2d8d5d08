#include "spool/models/steps/step.h"

#include <algorithm>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/steps/sharding/step_shards.h"

namespace spool {

StepDescription with_neighbours(StepDescription step) {
  StepConfig& config = step.config;
  if (config.zero == 3 && config.ranks > 0 && !step.shards) step.shards = whole_micro_batches();
  config.neighbours = step.shards ? step.shards->mesh.ranks() : 1;
  check(!step.shards || (config.ranks > 0 && config.ranks % config.neighbours == 0), "steps of ",
        config.ranks, " ranks cannot be cut over the mesh ",
        step.shards ? step.shards->mesh.text() : "", ", which has ", config.neighbours,
        "; StepConfig::ranks must be as many, or a multiple of them");
  return step;
}

namespace {

constexpr const char* trained_by_ranks =
    "of several ranks each updates a part of the parameters and sends it to the others, from "
    "device to device; keep what is trained on the device and update it at the end, or train on "
    "one rank";

std::unique_ptr<StepModel> make_with_homes(const StepDescription& step, Stream& stream,
                                           const std::vector<bool>& away) {
  std::unique_ptr<StepModel> model = make_declared(step.make_model, stream);
  model->parameters().allocate_declared(away);
  return model;
}

}  // namespace

void check_homes(const StepConfig& config, const Parameters& parameters) {
  const auto is_trained_there = [](const Parameter* p) { return p->trainable && p->home; };
  check_setting(config.ranks == 0 || std::ranges::none_of(parameters, is_trained_there),
                {"parameters", "ranks"}, trained_by_ranks);
}

void check_homes(const StepConfig& config, const Plan& plan) {
  if (!uses_homes(plan)) return;
  check_setting(config.ranks == 0 || config.zero < 3, {"parameters", "zero"},
                "parameters that ranks store in parts, stage 3 of ZeRO, are gathered where they ",
                "are needed, not fetched from the host; keep them on the device, or choose stage ",
                "0, 1 or 2");
  const bool is_trained_there = std::ranges::any_of(plan.units, &PlannedUnit::gradients_away);
  check_setting(config.ranks == 0 || (!is_trained_there && plan.update == UpdateTime::end),
                {"parameters", "update", "ranks"}, trained_by_ranks);
  check_setting(config.ranks == 0 || config.neighbours == 1, {"parameters", "mesh"},
                "each of the ranks that share a micro-batch has its part of the parameters on its "
                "device; keep parameters on the device, or let each rank have micro-batches of its "
                "own");
  const double clip =
      std::visit([](const auto& settings) { return settings.clip; }, config.optimizer);
  check_setting(plan.update == UpdateTime::end || clip == 0, {"update", "clip"},
                "parameters that are updated in backward cannot wait for the norm of all "
                "gradients, by which a clip of ",
                clip, " cuts them; set the clip to 0, or update them at the end");
}

std::unique_ptr<StepModel> make_step_model(const StepDescription& step, Stream& stream,
                                           const Plan& plan) {
  check_homes(step.config, plan);
  const std::vector<bool> away = parameters_away(plan);
  if (!away.empty()) return make_with_homes(step, stream, away);
  if (!step.shards) return step.make_model(stream);
  const auto& [mesh, choose] = *step.shards;
  return std::make_unique<ShardedModel>(step.make_model, choose, mesh, stream,
                                        step.config.zero == 3);
}

}  // namespace spool
