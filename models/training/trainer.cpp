#include "spool/models/training/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "spool/kernels/elementwise.h"
#include "spool/models/data/batches.h"
#include "spool/models/inference/generator.h"
#include "spool/models/training/step_layout.h"

namespace spool {

void no_rows(int64_t, std::span<int32_t>, std::span<int32_t>) {}

namespace {

std::unique_ptr<HostLink> make_link(const TrainingPlans& plans, Stream& stream) {
  const bool all_on_device =
      plans.step.optimizer_state == OptimizerState::device && !offloads(plans.step);
  return all_on_device ? nullptr : std::make_unique<HostLink>(stream, plans.host_bytes);
}

std::unique_ptr<Offloader> make_offloader(const TrainingPlans& plans, HostLink* link) {
  if (!offloads(plans.step)) return nullptr;
  if (!offloads_to_disk(plans.step)) return std::make_unique<Offloader>(*link);
  return std::make_unique<Offloader>(*link, plans.spill_directory, plans.disk_bytes);
}

DType loss_type(DType dtype) { return accumulator(dtype); }

void check_positive(const char* name, int64_t n) {
  constexpr int64_t large = int64_t{1} << 31;
  check(n > 0 && n < large, "--", name, " is ", n, ", and must be between 1 and ", large - 1);
}

}  // namespace

void TrainingConfig::validate() const {
  model.validate();
  check_positive("batch", batch);
  check_positive("seq", seq);
  check_positive("accumulate", accumulate);
  check_positive("steps", steps);
  check(seq <= model.context, "--seq ", seq, " is beyond the model's context of ", model.context,
        "; give a smaller --seq or a larger --context");
  check(batch * seq < int64_t{1} << 31, "--batch ", batch, " by --seq ", seq,
        " are too many tokens for one micro-batch; use --accumulate");
  check(warmup >= 0 && warmup <= steps, "--warmup ", warmup, " is not between 0 and the ", steps,
        " steps");
  check(std::isfinite(lr) && lr > 0, "--lr must be above 0, not ", lr);
  check(min_lr >= 0 && min_lr <= lr, "--min-lr must be between 0 and the learning rate, not ",
        min_lr);
  check(dropout >= 0 && dropout < 1, "--dropout must be in [0, 1), not ", dropout);
  check(optimizer.beta2 >= 0 && optimizer.beta2 < 1, "--beta2 must be in [0, 1), not ",
        optimizer.beta2);
  check(optimizer.decay >= 0 && optimizer.decay < 1 / lr, "--weight-decay must not be ",
        optimizer.decay);
  check(std::isfinite(optimizer.clip) && optimizer.clip >= 0, "--clip must be 0 or more, not ",
        optimizer.clip);
  check(loss_chunk >= 0 && loss_chunk < int64_t{1} << 31,
        "--chunk-loss must be a number of rows, or 0 for all, not ", loss_chunk);
  check(dtype == DType::f32 || dtype == DType::bf16, "--dtype must be f32 or bf16, not ",
        name(dtype));
  check(optimizer.rounding == Rounding::nearest || dtype == DType::bf16, "--rounding ",
        name(optimizer.rounding), " is for --dtype bf16, whose masters it saves, not for ",
        name(dtype));
}

Trainer::Trainer(const TrainingConfig& config, const TrainingPlans& plans, Stream& stream)
    : config_(config),
      plans_(plans),
      stream_(stream),
      model_(config.model, config.dtype, stream),
      link_(make_link(plans, stream)),
      offloader_(make_offloader(plans, link_.get())),
      optimizer_(model_.parameters(), config.optimizer, stream,
                 {.state = plans.step.optimizer_state, .link = link_.get()}),
      input_(config.batch, config.seq, stream),
      evaluator_(model_, input_, plans_.evaluation, stream) {
  const auto make = [&](const char* name, const Shape& shape, DType type) {
    return Tensor({shape, type}, stream, {.name = name, .purpose = Purpose::input});
  };
  loss_ = make("loss", {1}, loss_type(config.dtype));
  loss_scale_ = make("loss scale", {1}, loss_type(config.dtype));
  random_ = make("random state", {4}, DType::i32);
}

void Trainer::initialise() {
  model_.initialise(config_.seed);
  optimizer_.initialise();
}

void Trainer::initialise_from(const ModelFile& file) {
  file.load(model_);
  optimizer_.initialise();
  if (!optimizer_.masters().empty()) file.load(model_, optimizer_.masters());
}

double Trainer::learning_rate(int64_t step) const {
  return cosine_schedule(step, config_.steps, config_.warmup, config_.lr, config_.min_lr);
}

void Trainer::prepare() {
  if (prepared_ || !stream_.captures()) return;
  prepared_ = true;
  upload(0, 0, [](int64_t, std::span<int32_t> tokens, std::span<int32_t> targets) {
    std::ranges::fill(tokens, 0);
    std::ranges::fill(targets, 0);
  });
  // Gradients that are not numbers, of which the optimizer makes nothing.
  launch(Fill{.out = loss_scale_, .value = std::numeric_limits<float>::quiet_NaN()}, stream_);
  optimizer_.prepare(/*t=*/1, learning_rate(0));
  PlacedStep memory(stream_.arena(), plans_.layout);
  const int64_t count = std::min<int64_t>(config_.accumulate, 2);
  for (int64_t micro = 0; micro < count; ++micro) run_micro_step(step_phase(micro, count));
  optimizer_.update(random_);
  memory.finish();
  stream_.synchronize();
}

void Trainer::step(int64_t step, const Rows& rows) {
  prepare();
  for (Parameter* p : model_.parameters()) p->grad = {};  // of a step that did not end
  const int64_t count = config_.batch * config_.accumulate, first = step * count;
  std::vector<int32_t> tokens(static_cast<size_t>(config_.seq)), targets(tokens.size());
  int64_t valid = 0;
  for (int64_t row = first; row < first + count; ++row) {
    rows(row, tokens, targets);
    valid += config_.seq - std::ranges::count(targets, ignored_target);
  }
  const float scale = 1 / static_cast<float>(std::max<int64_t>(valid, 1));
  write<float>(loss_scale_, std::span(&scale, 1));
  optimizer_.prepare(step + 1, learning_rate(step));
  launch(Fill{.out = loss_}, stream_);
  graphs_.begin_step(stream_);
  PlacedStep memory(stream_.arena(), plans_.layout);
  for (int64_t micro = 0; micro < config_.accumulate; ++micro) {
    upload(step, micro, rows);
    enqueue_micro_step(micro);
  }
  memory.finish();
  graphs_.end_step();
}

// What differs from one micro-step to the next is in memory of the device before it begins.
void Trainer::upload(int64_t step, int64_t micro, const Rows& rows) {
  const int64_t first = (step * config_.accumulate + micro) * config_.batch;
  input_.upload([&](int64_t b, auto to, auto to_targets) { rows(first + b, to, to_targets); });
  const std::array<int32_t, 4> random{static_cast<int32_t>(config_.seed),
                                      static_cast<int32_t>(config_.seed >> 32),
                                      static_cast<int32_t>(step), static_cast<int32_t>(micro)};
  write<int32_t>(random_, random);
}

void Trainer::enqueue_micro_step(int64_t micro) {
  const bool first = micro == 0, last = micro + 1 == config_.accumulate;
  const auto work = [&] {
    run_micro_step(step_phase(micro, config_.accumulate));
    if (last) optimizer_.update(random_);
  };
  const bool host_works =
      plans_.step.optimizer_state == OptimizerState::cpu || offloads_to_disk(plans_.step);
  const bool records = plans_.graph && !host_works && !stream_.trace() && stream_.captures();
  if (!records) return work();
  graphs_.enqueue(first, last, work, stream_);
}

void Trainer::run_micro_step(size_t phase) {
  stream_.arena().begin_phase(phase);
  Tape tape(stream_, {.plan = plans_.step,
                      .backward_follows = true,
                      .micro_batches = static_cast<int>(config_.accumulate),
                      .loss_scale = loss_scale_,
                      .random = random_,
                      .offloader = offloader_.get()});
  const Var loss =
      model_.loss(tape.input(input_.tokens), tape.input(input_.targets), config_.dropout);
  launch(Add{.out = add_to(loss_), .a = loss.tensor()}, stream_);
  tape.backward(loss);
}

StepResult Trainer::result() const {
  optimizer_.synchronize();
  const float loss = read<float>(loss_).front();
  const std::vector<float> clip = read<float>(optimizer_.clip());
  return {.loss = loss, .grad_norm = clip[1], .finite = std::isfinite(loss) && clip[2] > 0};
}

Report rehearse_training(const TrainingConfig& config, const TrainingPlans& plans,
                         const Machine& machine, const SampleLength& sample) {
  const int64_t rehearsed = std::min(config.accumulate, distinct_micro_batches);
  const int64_t left_out = config.accumulate - rehearsed;
  double seconds[2] = {};
  Report report;
  MemoryStats host, disk;
  for (const int64_t fewer : {1, 0}) {
    if (fewer && !left_out) continue;
    TrainingConfig some = config;
    some.accumulate = rehearsed - fewer;
    report = rehearse(machine, [&](MetaStream& stream) {
      Trainer trainer(some, plans, stream);
      trainer.initialise();
      const double start = stream.now();
      trainer.step(0, no_rows);
      seconds[fewer] = stream.now() - start;
      trainer.evaluator().evaluate(some.batch, no_rows);
      if (sample.drawn > 0) {
        Generator(trainer.model(), stream).rehearse(sample.prompt, sample.drawn);
      }
      host = trainer.host_memory();
      disk = trainer.disk();
    });
  }
  const auto more = static_cast<double>(left_out);
  report.host = host;
  report.disk = disk;
  report.seconds = seconds[0] + more * (seconds[0] - seconds[1]);
  return report;
}

}  // namespace spool
