#include "spool/models/steps/step_runner.h"

#include <algorithm>

#include "spool/models/formats/run_directory.h"
#include "spool/models/steps/exchange/gradient_sums.h"
#include "spool/models/steps/exchange/same_parameters.h"
#include "spool/models/steps/files/step_checkpoint.h"
#include "spool/models/steps/step_calibration.h"
#include "spool/models/steps/step_executor.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/runtime/log.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// An absolute path without links and dots, which stays valid if the working directory changes.
fs::path whole_path(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(path, error);
  if (error) whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

DType dtype_of_model(const StepDescription& step) {
  MetaStream stream{Machine{}};
  return step.make_model(stream)->parameters().dtype();
}

}  // namespace

StepRunner::StepRunner(StepDescription description, const StepRequest& request,
                       const StepPlace& place, const std::string& resume)
    : description_(with_neighbours(std::move(description))) {
  description_.config.dtype = dtype_of_model(description_);
  std::optional<StepCheckpoint> checkpoint;
  if (!resume.empty()) checkpoint = find_checkpoint(resume, description_);
  plan(request, place, checkpoint);
  open(place, checkpoint);
}

void StepRunner::plan(const StepRequest& given, const StepPlace& place,
                      const std::optional<StepCheckpoint>& checkpoint) {
  const bool keeps = checkpoint && keeps_chunks(*checkpoint, description_);
  const StepRequest request = keeps ? with_chunks_of(*checkpoint, given) : given;
  const auto measured = [&] {
    CalibrationRequest wanted = calibration_of(description_, request, place.device, place.threads);
    if (checkpoint) wanted.products = checkpoint->products;
    wanted.ranks = place.ranks ? place.ranks->size() : 0;
    wanted.own_rank = place.ranks;
    Calibration found = calibrate(wanted);
    found.machine.mesh.rank = 0;  // so that all ranks plan alike
    products_ = std::move(found.products);
    return std::move(found.machine);
  };
  planned_ = plan_steps(description_, request, place.machine ? *place.machine : measured());
  if (keeps) check_chunks(*checkpoint, planned_.plans.step, planned_.chunks);
}

void StepRunner::open(const StepPlace& place, const std::optional<StepCheckpoint>& checkpoint) {
  own_stream_ = open_stream(place.device, planned_.budget, place.threads);
  own_stream_->join(place.ranks);
  const auto of_run = checkpoint ? std::optional(checkpoint->products) : std::nullopt;
  if (place.machine) products_ = use_tuned_products(*own_stream_, of_run);
  use_matmul_algorithms(*own_stream_, products_);
  if (of_run) products_ = *of_run;
  make_executor(*own_stream_);
  initialise();
  if (!checkpoint) return;
  load_checkpoint(*checkpoint, *model_, optimizer());
  resumed_ = std::make_unique<const StepCheckpoint>(*checkpoint);
  steps_ = checkpoint->step;
  own_runs_.push_back(whole_path(checkpoint->directory.parent_path()));
  const bool keeps_sums = checkpoint->summed_ranks == summed_ranks(description_.config);
  if (keeps_sums || (place.ranks && place.ranks->rank() > 0)) return;
  logger().warn(
      "the gradients of micro-batches are now added in another order: from step {} on, "
      "losses differ in their last bits from those of the run as it was begun",
      steps_ + 1);
}

StepRunner::StepRunner(StepDescription description, const StepPlans& plans, Stream& stream)
    : description_(with_neighbours(std::move(description))), planned_{.plans = plans} {
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

bool StepRunner::share_state(const std::function<void()>& work) {
  check_same_parameters(model_->parameters());
  return executor_->share_state(work);
}

void StepRunner::make_executor(Stream& stream) {
  stream_ = &stream;
  model_ = make_step_model(description_, stream, planned_.plans.step);
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

void StepRunner::check_is_own(const fs::path& run) const {
  const bool is_own = std::ranges::count(own_runs_, run) > 0;
  check_file_setting(is_own || !latest_checkpoint(run), run, {"resume", "out"},
                     "has the checkpoints of another run; resume that one, by naming its directory "
                     "as the runner is made, or save to another directory");
}

void StepRunner::save(const std::string& directory) {
  share_state([&] { write(directory); });
}

void StepRunner::write(const std::string& directory) {
  check_run_directory(directory);
  const fs::path run = whole_path(directory);
  if (!directory_ || directory_->path() != run) {
    check_is_own(run);
    auto opened = std::make_unique<RunDirectory>(run);
    check_is_own(run);  // now that no other run writes there
    directory_ = std::move(opened);
    own_runs_.push_back(run);
  }
  stream_->synchronize();
  StepCheckpoint checkpoint = describe_checkpoint(steps_, description_, planned_, resumed_.get());
  checkpoint.products = products_;
  directory_->write(steps_, [&](const fs::path& partial) {
    save_checkpoint(partial, checkpoint, *model_, optimizer());
  });
}

}  // namespace spool
