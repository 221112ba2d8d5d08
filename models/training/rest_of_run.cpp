#include "spool/models/training/rest_of_run.h"

#include "spool/models/inference/evaluation_plan.h"
#include "spool/models/inference/generator.h"
#include "spool/models/steps/exchange/same_parameters.h"
#include "spool/models/training/trainer.h"

namespace spool {

MemoryStats rehearse_others(const TrainingConfig& config, const Plan& step, const Machine& machine,
                            const SampleLength& sample) {
  const Plan state{.optimizer_state = step.optimizer_state,
                   .state_bytes_on_device = step.state_bytes_on_device,
                   .units = step.units,
                   .update = step.update,
                   .bucket_elements = step.bucket_elements};
  Machine of_ranks = machine;
  of_ranks.mesh.ranks = config.ranks;
  const Report report = rehearse_totals(of_ranks, [&](MetaStream& stream) {
    Trainer trainer(config, {.step = state}, stream);
    trainer.initialise();
    trainer.evaluator().rehearse_mean_loss();
    check_same_parameters(trainer.model().parameters());
    if (sample.drawn == 0) return;
    Generator(trainer.model(), stream, sample.prompt + sample.drawn, trainer.shared())
        .rehearse(sample.prompt, sample.drawn);
  });
  return report.memory;
}

RestOfRun::RestOfRun(const TrainingConfig& config, const SampleLength& sample,
                     const Machine& machine)
    : config_(config), sample_(sample), machine_(machine) {}

ChunkRows RestOfRun::evaluation_rows(const Plan& step, size_t limit, size_t most) {
  const auto peak = [&](const ChunkRows& rows) { return memory(step, rows).peak; };
  if (config_.evaluation && peak(*config_.evaluation) <= most) return *config_.evaluation;
  return fewest_chunks(config_.batch * config_.seq, limit, peak);
}

MemoryStats RestOfRun::memory(const Plan& step, const ChunkRows& rows) {
  const auto [at, is_new] = known_.try_emplace(
      {step.optimizer_state, step.state_bytes_on_device, homes_of(step), rows.loss, rows.mlp});
  if (is_new) {
    TrainingConfig in_chunks = config_;
    in_chunks.evaluation = rows;
    at->second = rehearse_others(in_chunks, step, machine_, sample_);
  }
  return at->second;
}

std::shared_ptr<RestOfRun> RestOfRun::with(int64_t batch, int64_t seq,
                                           const Machine& machine) const {
  TrainingConfig config = config_;
  config.batch = batch;
  config.seq = seq;
  config.evaluation.reset();
  return std::make_shared<RestOfRun>(config, sample_, machine);
}

RunSteps describe_run(const std::shared_ptr<RestOfRun>& rest) {
  const TrainingConfig& config = rest->config();
  return {.step = describe_step(config),
          .others =
              [rest](const Plan& step, size_t limit, size_t most) {
                return rest->memory(step, rest->evaluation_rows(step, limit, most));
              },
          .batch = config.batch,
          .seq = config.seq,
          .smaller =
              [rest](int64_t batch, int64_t seq, const Machine& other) {
                return describe_run(rest->with(batch, seq, other));
              }};
}

}  // namespace spool
