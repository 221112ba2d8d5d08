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

// A checkpoint reads h, and does not need it: none of its ops is recomputed.
TEST_F(SavedTensors, AValueThatACheckpointReadsAndDropsIsPackedOnce) {
  struct Counting final : SavedTensorHooks {
    std::vector<ValueId> packed;
    std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
      packed.push_back(info.value);
      return keep(t);
    }
  } hooks;
  const auto gradients = [&](Tape& tape, bool saved_later) {
    const Var h = linear(tape.input(x), weights[0]);
    const Var twice = checkpoint(tape, [&] { return scale(h, 2); });
    const Var y = add(twice, saved_later ? gelu(h) : h);
    tape.backward({Root{y, dy}});
    return take_gradients();
  };
  for (const bool saved_later : {true, false}) {
    Tape kept(stream);
    const Bits expected = gradients(kept, saved_later);
    Tape hooked(stream);
    {
      const Tape::HooksScope scope(hooked, hooks);
      EXPECT_EQ(gradients(hooked, saved_later), expected);
    }
    EXPECT_EQ(hooks.packed.size(), 1u);
    hooks.packed.clear();
    const int64_t before = offloader.sent().tensors;
    Tape offloaded(stream, options({.placement = {Placement::keep, Placement::keep,  // x, weight
                                                  Placement::offload}}));
    EXPECT_EQ(gradients(offloaded, saved_later), expected);
    EXPECT_EQ(offloader.sent().tensors, before + 1);
    EXPECT_EQ(link.memory().live, 0u) << "although the tape is still there";
  }
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
