#include "spool/models/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"
#include "spool/models/data.h"
#include "spool/models/generator.h"
#include "spool/planner/chunks.h"

namespace spool {
namespace {

// What a rehearsal reads: nothing.
void no_rows(int64_t, std::span<int32_t>, std::span<int32_t>) {}

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
  check(optimizer.decay >= 0 && optimizer.decay < 1 / lr, "--weight-decay must not be ",
        optimizer.decay);
  check(std::isfinite(optimizer.clip) && optimizer.clip >= 0, "--clip must be 0 or more, not ",
        optimizer.clip);
  check(loss_chunk >= 0, "--chunk-loss must be 0 or more rows, not ", loss_chunk);
  check(dtype == DType::f32 || dtype == DType::bf16, "--dtype must be f32 or bf16, not ",
        name(dtype));
}

TrainingPlans make_plans(const TrainingConfig& config) {
  if (config.loss_chunk == 0) return {};
  const auto plan = [&](bool training) {
    MetaStream stream(Machine{});
    Gpt2 model(config.model, config.dtype, stream);
    const Spec ids{Shape{config.batch, config.seq}, DType::i32};
    Tape tape(stream, {.recording = false,
                       .training = training,
                       .random = Tensor({Shape{4}, DType::i32}, stream)});
    const Var tokens = tape.input(Tensor(ids, stream)), targets = tape.input(Tensor(ids, stream));
    model.loss(tokens, targets, config.dropout);
    return chunk_rows(tape, config.loss_chunk);
  };
  return {.step = plan(true), .evaluation = plan(false)};
}

Trainer::Trainer(const TrainingConfig& config, const TrainingPlans& plans, Stream& stream)
    : config_(config),
      plans_(plans),
      stream_(stream),
      model_(config.model, config.dtype, stream),
      optimizer_(model_.parameters(), config.optimizer, stream) {
  const auto make = [&](const char* name, const Shape& shape, DType type) {
    return Tensor({shape, type}, stream, {.name = name, .purpose = Purpose::input});
  };
  tokens_ = make("tokens", {config.batch, config.seq}, DType::i32);
  targets_ = make("targets", {config.batch, config.seq}, DType::i32);
  loss_ = make("loss", {1}, loss_type(config.dtype));
  loss_scale_ = make("loss scale", {1}, loss_type(config.dtype));
  random_ = make("random state", {4}, DType::i32);
  loss_sum_ = make("loss sum", {1}, DType::f64);
}

void Trainer::initialise() {
  model_.initialise(config_.seed);
  optimizer_.initialise();
}

double Trainer::learning_rate(int64_t step) const {
  return cosine_schedule(step, config_.steps, config_.warmup, config_.lr, config_.min_lr);
}

void Trainer::step(int64_t step, const Rows& rows) {
  const auto B = config_.batch, T = config_.seq, count = B * config_.accumulate;
  std::vector<int32_t> tokens(static_cast<size_t>(count * T)), targets(tokens.size());
  for (int64_t row = 0; row < count; ++row) {
    const auto begin = static_cast<size_t>(row * T), length = static_cast<size_t>(T);
    rows(step * count + row, std::span(tokens).subspan(begin, length),
         std::span(targets).subspan(begin, length));
  }
  const auto ignored = std::ranges::count(targets, ignored_target);
  const float valid = static_cast<float>(std::max<int64_t>(count * T - ignored, 1));
  launch(Fill{.out = loss_scale_, .value = 1 / valid}, stream_);
  launch(Fill{.out = loss_}, stream_);
  for (int64_t micro = 0; micro < config_.accumulate; ++micro) {
    const auto begin = static_cast<size_t>(micro * B * T), length = static_cast<size_t>(B * T);
    micro_step(step, micro, std::span(tokens).subspan(begin, length),
               std::span(targets).subspan(begin, length));
  }
  optimizer_.step(step + 1, learning_rate(step));
}

void Trainer::micro_step(int64_t step, int64_t micro, std::span<const int32_t> tokens,
                         std::span<const int32_t> targets) {
  write<int32_t>(tokens_, tokens);
  write<int32_t>(targets_, targets);
  const std::array<int32_t, 4> random{static_cast<int32_t>(config_.seed),
                                      static_cast<int32_t>(config_.seed >> 32),
                                      static_cast<int32_t>(step), static_cast<int32_t>(micro)};
  write<int32_t>(random_, random);
  Tape tape(stream_, {.plan = plans_.step,
                      .backward_follows = true,
                      .micro_batches = static_cast<int>(config_.accumulate),
                      .loss_scale = loss_scale_,
                      .random = random_});
  const Var loss = model_.loss(tape.input(tokens_), tape.input(targets_), config_.dropout);
  launch(Add{.out = Grad(loss_, true), .a = loss.tensor()}, stream_);
  tape.backward(loss);
}

StepResult Trainer::result() const {
  const float loss = read<float>(loss_).front();
  const std::vector<float> clip = read<float>(optimizer_.clip());
  return {.loss = loss, .grad_norm = clip[1], .finite = std::isfinite(loss) && clip[2] > 0};
}

void Trainer::evaluate(int64_t count, const Rows& rows) {
  const auto B = config_.batch, T = config_.seq;
  std::vector<int32_t> tokens(static_cast<size_t>(B * T)), targets(tokens.size());
  launch(Fill{.out = loss_sum_}, stream_);
  for (int64_t first = 0; first < count; first += B) {
    for (int64_t b = 0; b < B; ++b) {
      const auto begin = static_cast<size_t>(b * T), length = static_cast<size_t>(T);
      rows(first + b, std::span(tokens).subspan(begin, length),
           std::span(targets).subspan(begin, length));
    }
    write<int32_t>(tokens_, tokens);
    write<int32_t>(targets_, targets);
    Tape tape(stream_, {.plan = plans_.evaluation, .recording = false, .training = false});
    const Var sum = model_.loss(tape.input(tokens_), tape.input(targets_), 0, Reduction::sum);
    launch(SumAll{.out = Grad(loss_sum_, true), .x = sum.tensor()}, stream_);
  }
}

double Trainer::loss_sum() const { return read<double>(loss_sum_).front(); }

Report rehearse_training(const TrainingConfig& config, const TrainingPlans& plans,
                         const Machine& machine, bool with_text) {
  double seconds = 0;
  Report report = rehearse(machine, [&](MetaStream& stream) {
    Trainer trainer(config, plans, stream);
    trainer.initialise();
    const double start = stream.now();
    trainer.step(0, no_rows);
    seconds = stream.now() - start;
    trainer.evaluate(config.batch, no_rows);
    if (with_text) Generator(trainer.model(), stream).rehearse();
  });
  report.seconds = seconds;
  return report;
}

}  // namespace spool
