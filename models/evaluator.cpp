#include "spool/models/evaluator.h"

#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"

namespace spool {
namespace {

Tensor make(const char* name, const Shape& shape, DType type, Stream& stream) {
  return Tensor({shape, type}, stream, {.name = name, .purpose = Purpose::input});
}

}  // namespace

BatchInput::BatchInput(int64_t batch, int64_t seq, Stream& stream)
    : tokens(make("tokens", {batch, seq}, DType::i32, stream)),
      targets(make("targets", {batch, seq}, DType::i32, stream)) {}

void BatchInput::upload(const Rows& rows) {
  const int64_t B = tokens.shape()[0], T = tokens.shape()[1];
  std::vector<int32_t> row(static_cast<size_t>(T)), row_targets(row.size());
  for (int64_t b = 0; b < B; ++b) {
    rows(b, row, row_targets);
    write<int32_t>(tokens.slice({b, b + 1}), row);
    write<int32_t>(targets.slice({b, b + 1}), row_targets);
  }
}

Evaluator::Evaluator(Gpt2& model, BatchInput& input, const Plan& plan, Stream& stream)
    : model_(model),
      input_(input),
      plan_(plan),
      stream_(stream),
      loss_sum_(make("loss sum", {1}, DType::f64, stream)) {}

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
    stream_.synchronize();  // or work would be queued up for all of the data
  }
}

double Evaluator::loss_sum() const { return read<double>(loss_sum_).front(); }

Tensor Evaluator::losses(const Rows& rows) {
  input_.upload(rows);
  Tape tape(stream_, {.plan = plan_, .recording = false, .training = false});
  return loss(tape, Reduction::none).tensor();
}

}  // namespace spool
