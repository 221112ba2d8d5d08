#include "spool/models/inference/evaluator.h"

#include <algorithm>
#include <cstring>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"
#include "spool/planner/chunks.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/ranks/communicator.h"

namespace spool {

Evaluator::Evaluator(Model& model, BatchInput& input, const Plan& plan, Stream& stream)
    : model_(model),
      input_(input),
      plan_(plan),
      stream_(stream),
      loss_sum_({Shape{1}, DType::f64}, stream, {.name = "loss sum", .purpose = Purpose::input}) {}

Var Evaluator::whole_loss(Tape& tape, Reduction reduction) {
  constexpr float no_dropout = 0;
  return model_.loss(text_on(tape, input_), tape.input(input_.targets), no_dropout, reduction);
}

Var Evaluator::loss(Tape& tape, Reduction reduction) {
  return divided_ ? shared_loss(reduction).pass->apply(tape) : whole_loss(tape, reduction);
}

void Evaluator::divide(const ShardedModel& model, const ChunkRows& chunks) {
  divided_ = &model;
  chunks_ = chunks;
}

// Its chunks are of the nodes of this rank's program.
const Evaluator::SharedLoss& Evaluator::shared_loss(Reduction reduction) {
  const auto [known, is_new] = losses_.try_emplace(reduction);
  SharedLoss& shared = known->second;
  if (!is_new) return shared;
  TapeOptions options{.recording = false, .training = false};
  RecordedLoss recorded =
      divided_->record([&](Tape& to) { return whole_loss(to, reduction); }, options);
  Assignment how = divided_->choose(recorded);
  shared.pass = divided_->pass(std::move(recorded), std::move(how));
  if (chunks_ == ChunkRows{}) return shared;
  options.runs = false;
  Tape tape(stream_, options);
  shared.pass->apply(tape);
  const Program program = tape.take_program();
  ChunkRows possible = chunks_;
  const bool has_mlps = !cuttable_mlps(program, 0, program.nodes.next_id() - 1).empty();
  if (!has_mlps) possible.mlp = 0;  // moves inside may need all rows
  shared.plan = plan_evaluation(program, possible);
  return shared;
}

Tape Evaluator::tape(Reduction reduction) {
  return Tape(stream_, {.plan = divided_ ? shared_loss(reduction).plan : plan_,
                        .recording = false,
                        .training = false});
}

void Evaluator::begin_sum() { launch(Fill{.out = loss_sum_}, stream_); }

void Evaluator::add_losses() {
  Tape on = tape(Reduction::sum);
  launch(SumAll{.out = add_to(loss_sum_), .x = loss(on, Reduction::sum).tensor()}, stream_);
  stream_.synchronize();  // otherwise the host would enqueue the work of all data at once
}

Tensor Evaluator::losses_of_input() {
  Tape on = tape(Reduction::none);
  return loss(on, Reduction::none).tensor();
}

// A rank that cannot read its rows still exchanges as those do that wait for it.
void Evaluator::fill(Range batch, const RowSource& rows) {
  try {
    rows.fill(batch, batch_);
  } catch (const Error&) {
    if (divided_) add_losses();
    throw;
  }
}

double Evaluator::mean_loss(const RowSource& rows,
                            const std::function<void(int64_t rows)>& on_progress) {
  const int64_t B = input_.tokens.shape()[0], batches = ceil_div(rows.rows(), B);
  Communicator* const ranks = stream_.ranks();
  const UncountedExchanges beside_steps(ranks);
  const int64_t rank = ranks ? ranks->rank() / neighbours() : 0;
  const int64_t count = ranks ? ranks->size() / neighbours() : 1;
  std::vector<double> sums;  // of this rank's batches
  begin_sum();
  for (int64_t first = 0; first < batches; first += count) {
    const int64_t own = first + rank, batch = std::min(own, batches - 1);
    // Ranks that share batches, or gather parameters, exchange alike: all work if one does.
    if (own < batches || divided_) {
      fill({batch * B, (batch + 1) * B}, rows);
      input_.upload(batch_, /*first=*/0);
      add_losses();
      if (ranks) {
        if (own < batches) sums.push_back(read<double>(loss_sum_).front());
        begin_sum();
      }
    }
    if (on_progress) on_progress(std::min((first + count) * B, rows.rows()));
  }
  const double sum = ranks ? sum_of_ranks(sums, batches) : read<double>(loss_sum_).front();
  return sum / static_cast<double>(targets_of(rows));
}

int Evaluator::neighbours() const { return divided_ ? divided_->shards()->mesh().ranks() : 1; }

// Batch b is rank b mod ranks', of those that do not share it; their sums are added in order.
double Evaluator::sum_of_ranks(const std::vector<double>& own, int64_t batches) const {
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(double));
  const std::vector<std::string> all = stream_.ranks()->gather("evaluation", bytes);
  double sum = 0;
  const int64_t ranks = std::ssize(all) / neighbours();
  const auto sums_of = [&](int64_t r) -> const std::string& {
    return all[static_cast<size_t>(r * neighbours())];
  };
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t count = (batches - r + ranks - 1) / ranks;  // of its batches
    check(sums_of(r).size() == static_cast<size_t>(count) * sizeof(double), "rank ", r,
          " evaluates other data than rank ", stream_.ranks()->rank());
  }
  for (int64_t batch = 0; batch < batches; ++batch) {
    double one = 0;
    std::memcpy(&one,
                sums_of(batch % ranks).data() + static_cast<size_t>(batch / ranks) * sizeof one,
                sizeof one);
    sum += one;
  }
  return sum;
}

Tensor Evaluator::losses(const TokenBatch& batch) {
  input_.upload(batch, /*first=*/0);
  return losses_of_input();
}

void Evaluator::rehearse_mean_loss() {
  begin_sum();
  input_.upload_placeholder();
  add_losses();
}

void Evaluator::rehearse_losses() {
  input_.upload_placeholder();
  losses_of_input();
}

Text text_on(Tape& tape, const BatchInput& input) {
  if (!input.positions) return tape.input(input.tokens);
  const Var tokens = tape.input(input.tokens), positions = tape.input(input.positions);
  return {tokens, positions, tape.input(input.firsts)};
}

Program evaluation_program(const EvaluationShape& shape) {
  MetaStream stream(Machine{});
  const auto model = shape.model.make(shape.dtype, stream, shape.seq);
  const BatchInput input(shape.batch, shape.seq, stream, shape.packed);
  Tape tape(stream, {.recording = false, .training = false});
  (void)model->loss(text_on(tape, input), tape.input(input.targets)).tensor();
  return tape.take_program();
}

Plan plan_evaluation(const Program& program, const ChunkRows& rows) {
  Plan plan;
  if (rows.loss > 0) plan = chunk_rows(program, rows.loss);
  if (rows.mlp > 0) plan.regions = chunk_mlps(program, rows.mlp);
  return plan;
}

Plan plan_evaluation(const EvaluationShape& shape, const ChunkRows& rows) {
  return rows == ChunkRows{} ? Plan{} : plan_evaluation(evaluation_program(shape), rows);
}

}  // namespace spool
