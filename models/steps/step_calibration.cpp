#include "spool/models/steps/step_calibration.h"

#include "spool/models/steps/exchange/measured_sums.h"
#include "spool/models/steps/step_executor.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/planner/machines/device_identity.h"

namespace spool {
namespace {

constexpr int64_t different = 2;  // micro-batches

// A step of the model, ready to run on a placeholder.
class CalibratedStep final : public RepeatedWork {
 public:
  // `of_ranks`: of the step that is foretold.
  CalibratedStep(const StepDescription& described, const StepConfig& of_ranks,
                 const StepPlans& plans, Stream& stream)
      : of_ranks_(of_ranks),
        stream_(stream),
        model_(described.make_model(stream)),
        executor_(*model_, described.config, plans, stream) {
    model_->initialise(described.config.seed);
    executor_.optimizer().initialise();
    executor_.prepare(/*learning_rate=*/0);
    stream.synchronize();
  }

  // At learning rate 0, parameters keep their values.
  void run(int64_t number) override {
    executor_.run(Step{.number = number}, [&](int64_t) { model_->upload_placeholder(); });
    launch_sums(model_->parameters().trainable(), of_ranks_, stream_);
  }
  MemoryStats host_memory() const override { return executor_.host_memory(); }
  MemoryStats disk() const override { return executor_.disk(); }

 private:
  StepConfig of_ranks_;
  Stream& stream_;
  std::unique_ptr<StepModel> model_;
  StepExecutor executor_;
};

}  // namespace

MeasurableWork measurable_step(const StepDescription& whole, const StepPlans& plans) {
  StepDescription alone = whole;
  alone.shards.reset();
  alone.config.ranks = 0;
  alone.config.neighbours = 1;
  const StepDescription step = with_micro_batches(alone, different);
  return {.open =
              [step, of_ranks = whole.config, plans](Stream& stream, const WorkMemory& memory) {
                StepPlans placed = plans;
                placed.host_bytes = memory.host_bytes;
                placed.disk_bytes = memory.disk_bytes;
                placed.layout = memory.layout;
                return std::make_unique<CalibratedStep>(step, of_ranks, placed, stream);
              },
          .lay_out =
              [step, plans](const Machine& machine) { return lay_out_step(step, plans, machine); }};
}

// Kernels are measured in steps of the whole model, whose ops have other nodes than a rank's.
CalibrationRequest calibration_of(const StepDescription& of_rank, const StepRequest& request,
                                  Device device, int threads) {
  StepDescription step = of_rank;
  step.shards.reset();
  Policy policy = request.given_policy();
  if (of_rank.shards) policy.in_chunks.clear();
  std::vector<StepPlans> plans = calibration_plans(step, policy);
  if (request.plan && !of_rank.shards)
    plans.insert(plans.begin(), StepPlans{.step = *request.plan});
  CalibrationRequest calibration{.device = device,
                                 .threads = threads,
                                 .dtype = step.config.dtype,
                                 .memory = request.budget,
                                 .free = request.free,
                                 .disk = request.spill_directory,
                                 .folder = cache_folder()};
  for (StepPlans& each : plans) {
    each.spill_directory = request.spill_directory;
    calibration.samples.push_back(measurable_step(step, each));
  }
  calibration.work = calibration.samples.front();
  return calibration;
}

std::vector<StepPlans> calibration_plans(const StepDescription& step, const Policy& given) {
  Policy policy = given;
  std::vector<StepPlans> plans;
  const auto add = [&] {
    Machine any;
    plans.push_back({.step = plan_step(step, policy, any)});
  };
  add();
  policy.offload = Offloading::none;
  policy.norms = policy.activations = policy.attention = policy.block = true;
  add();
  if (policy.optimizer_state == OptimizerState::device) {
    policy.optimizer_state = OptimizerState::streamed;
    add();
  }
  return plans;
}

}  // namespace spool
