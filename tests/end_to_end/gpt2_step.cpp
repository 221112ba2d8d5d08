#include "tests/end_to_end/gpt2_step.h"

#include "spool/runtime/meta/stream.h"

namespace spool::testing {
namespace {

Tensor random_state_of_step(Stream& stream) {
  return make_tensor<int32_t>({4}, std::vector<int32_t>{1, 2, 3, 4}, stream);
}

}  // namespace

Var Gpt2Step::loss(Gpt2& model, Tape& tape, Stream& stream) const {
  std::vector<int32_t> ids(static_cast<size_t>(B * T));
  Random random(7);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(config.vocabulary));
  }
  const Tensor tokens = make_tensor<int32_t>({B, T}, ids, stream);
  return model.loss(tape.input(tokens), tape.input(tokens), dropout);
}

std::vector<Tensor> Gpt2Step::operator()(Stream& stream, TapeOptions options) const {
  Gpt2 model(config, DType::f32, stream);
  model.initialise(3);
  options.random = random_state_of_step(stream);
  options.backward_follows = true;
  Tape tape(stream, std::move(options));
  const Var y = loss(model, tape, stream);
  std::vector<Tensor> results{y.tensor()};
  tape.backward(y);
  for (Parameter* p : model.parameters()) results.push_back(p->grad);
  return stream.device().type == DeviceType::meta ? std::vector<Tensor>() : results;
}

void expect_as_kept(const Gpt2Step& step, int count, Device device) {
  MetaStream stream(Machine{});
  Gpt2 model(step.config, DType::f32, stream);
  Tape tape(stream, {.backward_follows = true, .random = random_state_of_step(stream)});
  step.loss(model, tape, stream);
  expect_as_kept(PlannedStep(step), count, device,
                 [&](Random& r) { return random_plan(tape.program(), r); });
}

}  // namespace spool::testing
