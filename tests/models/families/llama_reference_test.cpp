// Tiny models as transformers saves them (tests/reference/make_llama_reference.py): the logits,
// loss and gradients of a plain model in f64, and in bf16 no farther from it than transformers.

#include <algorithm>
#include <cmath>

#include "tests/models/families/llama_reference_testing.h"

namespace spool::testing {
namespace {

using Numbers = std::vector<double>;

class LlamaReference : public LlamaReferenceModel {
 protected:
  Numbers logits(Model& model) { return logits_of(model, tokens(), stream); }
};
INSTANTIATE_TEST_SUITE_P(Kind, LlamaReference, llama_kinds(), name_of_kind);

double tolerance(DType type) { return type == DType::f64 ? 1e-10 : 1e-5; }

TEST_P(LlamaReference, HasTheLogitsOfF64) {
  const Numbers wanted = values(expected("logits", {B, T, V}));
  for (const DType type : {DType::f64, DType::f32}) {
    EXPECT_LE(difference(logits(*make(type)), wanted), tolerance(type)) << name(type);
  }
}

TEST_P(LlamaReference, HasTheLossAndGradientsOfF64) {
  for (const DType type : {DType::f64, DType::f32}) {
    const auto model = make(type);
    Tape tape(stream, {.backward_follows = true});
    const Var loss = model->loss(tape.input(tokens()), tape.input(targets()));
    const double wanted = expected_number("loss");
    EXPECT_NEAR(values(loss.tensor()).front(), wanted, tolerance(type) * wanted);
    tape.backward(loss);
    std::vector<TensorContents> gradients;
    for (const Parameter* p : model->parameters()) gradients.emplace_back(p->grad);
    for (const NamedTensor& ours : stored(*model, gradients)) {
      const Numbers theirs = values(expected("grad." + ours.name, ours.tensor.shape()));
      EXPECT_LE(difference(values(ours.tensor.tensor()), theirs), tolerance(type))
          << name(type) << ", " << ours.name;
    }
  }
}

// With the same weights, rounded to bf16.
TEST_P(LlamaReference, IsNoFartherFromF64InBf16ThanTransformers) {
  const Numbers ours = logits(*make(DType::bf16)),
                exact = values(expected("bf16.logits", {B, T, V}));
  double largest = 0, mean_square = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double off = ours[i] - exact[i];
    largest = std::max(largest, std::abs(off));
    mean_square += off * off / static_cast<double>(exact.size());
  }
  EXPECT_LE(largest, 1.1 * expected_number("bf16.largest_error"));
  EXPECT_LE(std::sqrt(mean_square), 1.1 * std::sqrt(expected_number("bf16.mean_square_error")));
}

}  // namespace
}  // namespace spool::testing
