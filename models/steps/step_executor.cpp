#include "spool/models/steps/step_executor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// The result of a step, from its loss and the optimizer's clip().
StepResult step_result(float loss, const float* clip) {
  return {.loss = loss, .grad_norm = clip[1], .finite = std::isfinite(loss) && clip[2] > 0};
}

OptimizerMemory optimizer_memory(const Plan& plan, HostLink* link = nullptr) {
  return {
      .state = plan.optimizer_state, .link = link, .bytes_on_device = plan.state_bytes_on_device};
}

std::unique_ptr<HostLink> make_link(StepModel& model, const OptimizerSettings& settings,
                                    const StepPlans& plans, Stream& stream) {
  const OptimizerState state =
      place_of_state(model.parameters().trainable(), settings, optimizer_memory(plans.step));
  const bool all_on_device = state == OptimizerState::device && !offloads(plans.step);
  return all_on_device ? nullptr : std::make_unique<HostLink>(stream, plans.host_bytes);
}

std::unique_ptr<Offloader> make_offloader(const StepPlans& plans, HostLink* link) {
  if (!offloads(plans.step)) return nullptr;
  if (!offloads_to_disk(plans.step)) return std::make_unique<Offloader>(*link);
  return std::make_unique<Offloader>(*link, plans.spill_directory, plans.disk_bytes);
}

}  // namespace

StepResults::StepResults(Stream& stream)
    : stream_(stream),
      waiting_(stream.side_stream()),
      host_(stream.host_memory(2 * floats * sizeof(float))) {}

// Copies may still be running.
StepResults::~StepResults() { stream_.destroy_after_work(std::move(host_)); }

void StepResults::enqueue(int64_t number, const Tensor& loss, const Tensor& clip) {
  float* const to = memory(number);
  stream_.copy_out(to, loss.view().data(), sizeof(float));
  stream_.copy_out(to + 1, clip.view().data(), (floats - 1) * sizeof(float));
  slots_[static_cast<size_t>(number) % 2] = {.number = number, .done = stream_.record()};
}

StepResult StepResults::read(int64_t number) {
  try {
    waiting_->wait(slot(number).done);
    waiting_->synchronize();
  } catch (const Error&) {
    stream_.synchronize();  // its error names the kernels
    throw;
  }
  const float* const from = memory(number);
  return step_result(from[0], from + 1);
}

Program run_micro_batch(StepModel& model, Stream& stream, TapeOptions options,
                        const Tensor& loss_sum) {
  options.backward_follows = true;
  Tape tape(stream, std::move(options));
  {
    const Var loss = model.loss(tape);
    launch(Add{.out = add_to(loss_sum), .a = loss.tensor()}, stream);
    tape.backward(loss);
  }
  return tape.take_program();
}

StepExecutor::StepExecutor(StepModel& model, const StepConfig& config, const StepPlans& plans,
                           Stream& stream)
    : model_(model),
      config_(config),
      plans_(plans),
      stream_(stream),
      link_(make_link(model, config.optimizer, plans, stream)),
      offloader_(make_offloader(plans, link_.get())),
      optimizer_(make_optimizer(model.parameters().trainable(), config.optimizer, stream,
                                optimizer_memory(plans.step, link_.get()))) {
  const auto make = [&](Name name, const Shape& shape, DType type) {
    return Tensor({shape, type}, stream, {.name = name, .purpose = Purpose::input});
  };
  loss_ = make("loss", {1}, accumulator(config.dtype));
  loss_scale_ = make("loss scale", {1}, accumulator(config.dtype));
  random_ = make("random state", {4}, DType::i32);
  if (stream.captures() && !host_works()) results_.emplace(stream);
}

bool StepExecutor::host_works() const {
  return plans_.step.optimizer_state == OptimizerState::cpu || offloads_to_disk(plans_.step);
}

void StepExecutor::prepare(double learning_rate) {
  if (prepared_ || !stream_.captures()) return;
  try {
    run_placeholder(learning_rate);
  } catch (...) {
    free_gradients();
    throw;
  }
  prepared_ = true;
}

void StepExecutor::run_placeholder(double learning_rate) {
  free_gradients();  // of other work
  const int64_t done = optimizer_->steps();
  model_.upload_placeholder();
  set_random(/*step=*/0, /*micro=*/0);
  // NaN gradients: the optimizer skips the step.
  launch(Fill{.out = loss_scale_, .value = std::numeric_limits<float>::quiet_NaN()}, stream_);
  optimizer_->prepare(/*t=*/1, learning_rate);
  PlacedStep memory(stream_.arena(), plans_.layout);
  const int64_t count = std::min<int64_t>(config_.accumulate, 2);
  for (int64_t micro = 0; micro < count; ++micro) run_micro_step(step_phase(micro, count));
  optimizer_->update(random_);
  memory.finish();
  optimizer_->set_steps(done);
  stream_.synchronize();
}

void StepExecutor::run(const Step& step, const UploadBatch& upload) {
  prepare(step.learning_rate);
  free_gradients();  // of other work, which the step's would be added to
  try {
    run_micro_steps(step, upload);
  } catch (...) {
    survey_ = nullptr;
    free_gradients();
    graphs_.discard();
    throw;
  }
}

void StepExecutor::free_gradients() {
  for (Parameter* p : model_.parameters()) p->grad = {};
}

void StepExecutor::run_micro_steps(const Step& step, const UploadBatch& upload) {
  if (survey_) survey_->start(stream_);
  if (results_) results_->forget(step.number);
  const float scale = 1 / static_cast<float>(std::max<int64_t>(step.targets, 1));
  write<float>(loss_scale_, std::span(&scale, 1));
  optimizer_->prepare(step.number + 1, step.learning_rate);
  launch(Fill{.out = loss_}, stream_);
  graphs_.begin(stream_);
  PlacedStep memory(stream_.arena(), plans_.layout);
  for (int64_t micro = 0; micro < config_.accumulate; ++micro) {
    upload(micro);
    set_random(step.number, micro);
    enqueue_micro_step(micro);
  }
  memory.finish();
  optimizer_->set_steps(step.number + 1);  // a replayed graph has not counted it
  if (results_ && !stream_.trace()) results_->enqueue(step.number, loss_, optimizer_->clip());
  survey_ = nullptr;
}

// A replayed graph takes no arguments: what differs between micro-steps is written to device memory
// before each of them.
void StepExecutor::set_random(int64_t step, int64_t micro) {
  const std::array<int32_t, 4> random{static_cast<int32_t>(config_.seed),
                                      static_cast<int32_t>(config_.seed >> 32),
                                      static_cast<int32_t>(step), static_cast<int32_t>(micro)};
  write<int32_t>(random_, random);
}

void StepExecutor::enqueue_micro_step(int64_t micro) {
  const bool first = micro == 0, last = micro + 1 == config_.accumulate;
  const auto work = [&] {
    run_micro_step(step_phase(micro, config_.accumulate));
    if (!last) return;
    const SurveyScope surveyed(survey_, stream_, Phase::optimizer);
    optimizer_->update(random_);
  };
  const bool captures = plans_.graph && !host_works() && !stream_.trace() && stream_.captures();
  if (!captures) return work();
  graphs_.enqueue({first, last}, work, stream_);
}

void StepExecutor::run_micro_step(size_t phase) {
  stream_.arena().begin_phase(phase);
  run_micro_batch(model_, stream_,
                  {.plan = plans_.step,
                   .micro_batches = static_cast<int>(config_.accumulate),
                   .loss_scale = loss_scale_,
                   .random = random_,
                   .offloader = offloader_.get(),
                   .survey = survey_},
                  loss_);
}

StepResult StepExecutor::result() const {
  optimizer_->synchronize();
  const float loss = read<float>(loss_).front();
  const std::vector<float> clip = read<float>(optimizer_->clip());
  return step_result(loss, clip.data());
}

StepResult StepExecutor::result(int64_t number) {
  if (results_ && results_->has(number)) return results_->read(number);
  check(optimizer_->steps() == number + 1, "there is no result of step ", number, " after ",
        optimizer_->steps(),
        " steps: only that of the last one, or of the last two where the device "
        "runs ahead, is kept");
  return result();
}

}  // namespace spool
