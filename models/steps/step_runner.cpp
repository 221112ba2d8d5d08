#include "spool/models/steps/step_runner.h"

#include "spool/models/formats/run_directory.h"
#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_checkpoint.h"
#include "spool/models/steps/step_executor.h"
#include "spool/planner/calibration/device_identity.h"

namespace spool {
namespace {

Machine machine_of(const StepPlace& place, const StepDescription& step,
                   const StepRequest& request) {
  if (place.machine) return *place.machine;
  CalibrationRequest calibration{.device = place.device,
                                 .threads = place.threads,
                                 .memory = request.budget,
                                 .step = step,
                                 .plans = calibration_plans(step, request.given_policy()),
                                 .disk = request.spill_directory,
                                 .folder = cache_folder()};
  if (request.plan) {
    calibration.plans.insert(calibration.plans.begin(), StepPlans{.step = *request.plan});
  }
  for (StepPlans& plans : calibration.plans) plans.spill_directory = request.spill_directory;
  return calibrate(calibration).machine;
}

DType dtype_of_model(const StepDescription& step) {
  MetaStream stream{Machine{}};
  return step.make_model(stream)->parameters().dtype();
}

}  // namespace

StepRunner::StepRunner(StepDescription description, const StepRequest& given,
                       const StepPlace& place, const std::string& resume)
    : description_(std::move(description)) {
  description_.config.dtype = dtype_of_model(description_);
  std::optional<StepCheckpoint> checkpoint;
  if (!resume.empty()) checkpoint = find_checkpoint(resume, description_);
  const StepRequest request = checkpoint ? with_chunks_of(*checkpoint, given) : given;
  const Machine machine = machine_of(place, description_, request);
  planned_ = plan_steps(description_, request, machine);
  if (checkpoint) check_chunks(*checkpoint, planned_.plans.step);
  own_stream_ = open_stream(place.device, planned_.budget, place.threads);
  make_executor(*own_stream_);
  initialise();
  if (checkpoint) {
    load_checkpoint(*checkpoint, *model_, optimizer());
    steps_ = checkpoint->step;
  }
}

StepRunner::StepRunner(StepDescription description, const StepPlans& plans, Stream& stream)
    : description_(std::move(description)), planned_{.plans = plans} {
  make_executor(stream);
}

StepRunner::~StepRunner() = default;

Optimizer& StepRunner::optimizer() { return executor_->optimizer(); }
void StepRunner::prepare(double learning_rate) { executor_->prepare(learning_rate); }
StepResult StepRunner::result() const { return executor_->result(); }
StepResult StepRunner::result(int64_t number) { return executor_->result(number); }
bool StepRunner::runs_ahead() const { return executor_->runs_ahead(); }
MemoryStats StepRunner::host_memory() const { return executor_->host_memory(); }
MemoryStats StepRunner::disk() const { return executor_->disk(); }

void StepRunner::make_executor(Stream& stream) {
  stream_ = &stream;
  model_ = description_.make_model(stream);
  executor_ = std::make_unique<StepExecutor>(*model_, description_.config, planned_.plans, stream);
}

void StepRunner::initialise() {
  model_->initialise(description_.config.seed);
  optimizer().initialise();
}

StepResult StepRunner::step(double learning_rate, int64_t targets, const UploadBatch& upload) {
  run({.number = steps_, .learning_rate = learning_rate, .targets = targets}, upload);
  return result();
}

void StepRunner::run(const Step& step, const UploadBatch& upload) {
  executor_->run(step, upload);
  steps_ = step.number + 1;
}

void StepRunner::save(const std::string& directory) {
  if (!directory_ || directory_->path() != directory) {
    directory_.reset();
    directory_ = std::make_unique<RunDirectory>(directory);
  }
  stream_->synchronize();
  const StepCheckpoint checkpoint = describe_checkpoint(steps_, description_, planned_);
  directory_->write(steps_, [&](const std::filesystem::path& partial) {
    save_checkpoint(partial, checkpoint, *model_, optimizer());
  });
}

}  // namespace spool
