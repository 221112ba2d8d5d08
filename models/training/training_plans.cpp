#include "spool/models/training/training_plans.h"

#include "spool/autograd/fingerprint.h"
#include "spool/models/inference/evaluator.h"

namespace spool {
namespace {

// What a micro-step works on, besides the model; never set.
struct Inputs {
  Tensor tokens, targets, loss_scale, random;

  Inputs(const TrainingConfig& c, Stream& stream)
      : tokens({Shape{c.batch, c.seq}, DType::i32}, stream),
        targets(tokens.spec(), stream),
        loss_scale({Shape{1}, accumulator(c.dtype)}, stream),
        random({Shape{4}, DType::i32}, stream) {}
};

// A micro-step on meta, as a run does it.
void rehearse_micro_step(const TrainingConfig& config, const Machine& machine,
                         const TapeOptions& options,
                         const std::function<void(const Tape&)>& after_forward) {
  MetaStream stream(machine);
  Gpt2 model(config.model, config.dtype, stream);
  const Inputs inputs(config, stream);
  TapeOptions all = options;
  all.backward_follows = true;
  all.loss_scale = inputs.loss_scale;
  all.random = inputs.random;
  Tape tape(stream, all);
  const Var loss =
      model.loss(tape.input(inputs.tokens), tape.input(inputs.targets), config.dropout);
  after_forward(tape);
  tape.backward(loss);
}

}  // namespace

TrainingPlans make_plans(const TrainingConfig& config, Policy policy, const Machine& machine) {
  policy.loss_chunk = config.loss_chunk;
  const RehearsedTape micro_step = [&](const Machine& on, const TapeOptions& options,
                                       const std::function<void(const Tape&)>& after_forward) {
    rehearse_micro_step(config, on, options, after_forward);
  };
  return {.step = plan_from_policy(policy, machine, micro_step),
          .evaluation = plan_evaluation(config.model, config.dtype, config.batch, config.seq,
                                        config.loss_chunk)};
}

std::vector<uint64_t> step_fingerprints(const TrainingConfig& config) {
  std::vector<uint64_t> all;
  rehearse_micro_step(config, {}, {}, [&](const Tape& tape) { all = fingerprints(tape); });
  return all;
}

}  // namespace spool
