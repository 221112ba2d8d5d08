#include "tests/models/families/gpt2_testing.h"

namespace spool::testing {

void initialise_with_large_weights(Gpt2& model) {
  model.initialise(5);
  uint64_t seed = 1;
  for (Parameter* p : model.parameters()) {
    const Tensor larger = normal(p->data.shape(), model.dtype(), p->data.stream(), seed++, 0.3);
    launch(Add{.out = add_to(p->data), .a = larger}, p->data.stream());
  }
  model.clear_padding();
}

std::vector<int32_t> some_text(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<int32_t>(random.next() % 50));
  return all;
}

double forward_tolerance(DType t) {
  return t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 3e-2;
}

Tensor whole_hidden(Gpt2& model, const Tensor& tokens) {
  Tape tape(tokens.stream(), {.recording = false, .training = false});
  return model.hidden(tape.input(tokens)).tensor();
}

}  // namespace spool::testing
