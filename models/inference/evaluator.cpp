#include "spool/models/inference/evaluator.h"

#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"
#include "spool/planner/chunks.h"

namespace spool {

Evaluator::Evaluator(Gpt2& model, BatchInput& input, const Plan& plan, Stream& stream)
    : model_(model),
      input_(input),
      plan_(plan),
      stream_(stream),
      loss_sum_({Shape{1}, DType::f64}, stream, {.name = "loss sum", .purpose = Purpose::input}) {}

Var Evaluator::loss(Tape& tape, Reduction reduction) {
  constexpr float no_dropout = 0;
  return model_.loss(tape.input(input_.tokens), tape.input(input_.targets), no_dropout, reduction);
}

void Evaluator::evaluate(int64_t count, const Rows& rows) {
  launch(Fill{.out = loss_sum_}, stream_);
  for (int64_t first = 0; first < count; first += input_.tokens.shape()[0]) {
    input_.upload([&](int64_t b, auto tokens, auto targets) { rows(first + b, tokens, targets); });
    Tape tape(stream_, {.plan = plan_, .recording = false, .training = false});
    launch(SumAll{.out = add_to(loss_sum_), .x = loss(tape, Reduction::sum).tensor()}, stream_);
    stream_.synchronize();  // else the host would enqueue the work of all data at once
  }
}

double Evaluator::loss_sum() const { return read<double>(loss_sum_).front(); }

Tensor Evaluator::losses(const Rows& rows) {
  input_.upload(rows);
  Tape tape(stream_, {.plan = plan_, .recording = false, .training = false});
  return loss(tape, Reduction::none).tensor();
}

Plan plan_evaluation(const Gpt2Config& config, DType dtype, int64_t batch, int64_t seq,
                     int64_t loss_chunk) {
  if (loss_chunk == 0) return {};
  MetaStream stream(Machine{});
  Gpt2 model(config, dtype, stream);
  const BatchInput input(batch, seq, stream);
  Tape tape(stream, {.recording = false, .training = false});
  model.loss(tape.input(input.tokens), tape.input(input.targets));
  return chunk_rows(tape.program(), loss_chunk);
}

}  // namespace spool
