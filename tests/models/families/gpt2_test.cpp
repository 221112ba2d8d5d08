// runs: numbers
// GPT-2's logits and gradients against PyTorch (tests/reference/README.md).

#include "spool/models/families/gpt2.h"

#include "tests/models/families/reference_testing.h"

namespace spool::testing {
namespace {

class Gpt2Reference : public ReferenceModel {
 protected:
  double tolerance() const { return GetParam().dtype == DType::f64 ? 1e-12 : 1e-5; }
};
INSTANTIATE_TEST_SUITE_P(Gpt2, Gpt2Reference,
                         ::testing::ValuesIn(with_cuda({{DeviceType::cpu, DType::f32},
                                                        {DeviceType::cpu, DType::f64}})),
                         name_of);

TEST_P(Gpt2Reference, LogitsAreThoseOfPyTorch) {
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor logits = model.logits(model.hidden(tape.input(tokens))).tensor();
  const auto padded = values(logits), theirs = values(load("logits", {B, T, 61}, DType::f64));
  std::vector<double> ours;
  for (size_t i = 0; i < padded.size(); ++i) {
    if (i % 64 < 61) ours.push_back(padded[i]);
  }
  EXPECT_LE(difference(ours, theirs), tolerance());
}

TEST_P(Gpt2Reference, LossAndGradientsAreThoseOfPyTorch) {
  const double loss = values(load("loss", {}, DType::f64)).front();
  for (const bool in_forward : {false, true}) {
    for (const int chunks : {1, 5}) {
      Plan plan;
      plan.chunks.assign(64, 1);
      TapeOptions options{.backward_follows = in_forward};
      {
        Tape probe(stream, {.recording = false});
        model.loss(probe.input(tokens), probe.input(targets));
        plan.chunks[probe.nodes().size() - 1] = chunks;
      }
      options.plan = plan;
      Tape tape(stream, options);
      const Var ours = model.loss(tape.input(tokens), tape.input(targets));
      tape.backward(ours);
      EXPECT_NEAR(values(ours.tensor()).front(), loss, tolerance() * loss);
      expect_tensors("grad.", gradients(), tolerance());
      for (Parameter* p : model.parameters()) p->grad = {};
    }
  }
}

}  // namespace
}  // namespace spool::testing
