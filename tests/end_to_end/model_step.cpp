#include "tests/end_to_end/model_step.h"

#include "spool/kernels/normal.h"
#include "spool/models/families/gpt2.h"
#include "spool/runtime/meta/stream.h"

namespace spool::testing {
namespace {

Tensor random_state_of_step(Stream& stream) {
  return make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
}

}  // namespace

Var ModelStep::loss(Model& model, Tape& tape, Stream& stream) const {
  std::vector<int32_t> ids(static_cast<size_t>(B * T));
  Random random(7);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(config.shape().vocabulary));
  }
  const Tensor tokens = make_tensor<int32_t>({B, T}, ids, stream);
  if (!packed) return model.loss(tape.input(tokens), tape.input(tokens), dropout);
  constexpr int32_t length = 7;
  std::vector<int32_t> positions(ids.size()), first(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<int32_t>(static_cast<int64_t>(i) % T);
    positions[i] = at % length;
    first[i] = at - at % length;
  }
  const Text text(tape.input(tokens), tape.input(make_tensor<int32_t>({B, T}, positions, stream)),
                  tape.input(make_tensor<int32_t>({B, T}, first, stream)));
  return model.loss(text, tape.input(tokens), dropout);
}

std::vector<Tensor> ModelStep::operator()(Stream& stream, TapeOptions options) const {
  const auto model = config.make(DType::f32, stream, T);
  model->initialise(3);
  for (const Model::Adapted& adapted : model->adapters()) {  // B begins as zeros
    launch(NormalFill{.out = adapted.b->data, .deviation = 0.1f, .seed = 3}, stream);
  }
  options.random = random_state_of_step(stream);
  options.backward_follows = true;
  Tape tape(stream, std::move(options));
  const Var y = loss(*model, tape, stream);
  std::vector<Tensor> results{y.tensor()};
  tape.backward(y);
  for (Parameter* p : model->parameters().trainable()) results.push_back(p->grad);
  return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : results;
}

void expect_as_kept(const ModelStep& step, int count, Device device) {
  MetaStream stream(Machine{});
  const auto model = step.config.make(DType::f32, stream, step.T);
  Tape tape(stream, {.backward_follows = true, .random = random_state_of_step(stream)});
  step.loss(*model, tape, stream);
  expect_as_kept(PlannedStep(step), count, device,
                 [&](Random& r) { return random_plan(tape.program(), r); });
}

}  // namespace spool::testing
