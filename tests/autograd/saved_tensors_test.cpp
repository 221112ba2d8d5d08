// runs: threads
// Hooks, offload and recompute together.  (Hooks alone are in tape_test.cpp.)

#include "spool/autograd/ops.h"
#include "tests/autograd/saved_tensors_testing.h"

namespace spool::testing {
namespace {

class SavedTensors : public ChainTest {};

TEST_F(SavedTensors, AHookOverridesThePlan) {
  struct Counting final : SavedTensorHooks {
    int packed = 0;
    std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo&) override {
      ++packed;
      return keep(t);
    }
  } hooks;
  Tape tape(stream, options({.placement = std::vector(64, Placement::offload)}));
  const Tape::HooksScope scope(tape, hooks);
  const Var y = gelu_chain(tape.input(x));
  EXPECT_EQ(hooks.packed, 13);  // outputs of 7 linears and 6 gelus
  tape.backward({Root{y, dy}});
  const Bits found = take_gradients();
  EXPECT_EQ(found, gradients_of_gelu_chain({}));
}

TEST_F(SavedTensors, RecomputeAndOffloadCombineInEveryOrder) {
  const Bits expected = gradients_of_gelu_chain({});
  constexpr Placement all[] = {Placement::keep, Placement::recompute, Placement::offload};
  Tape survey(stream);
  gelu_chain(survey.input(x));
  for (int pattern = 0; pattern < 243; ++pattern) {  // five placements, repeated along the chain
    Plan plan{.placement = std::vector(survey.values().size(), Placement::keep)};
    for (size_t n = 0; n < survey.nodes().size(); ++n) {
      int rest = pattern;
      for (size_t k = 0; k < n % 5; ++k) rest /= 3;
      plan.placement[survey.nodes()[n].outputs[0]] = all[rest % 3];
    }
    ASSERT_EQ(gradients_of_gelu_chain(options(plan)), expected) << pattern;
    ASSERT_EQ(link.memory().live, 0u);
  }
}

}  // namespace
}  // namespace spool::testing
