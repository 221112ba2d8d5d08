// runs: threads
// Hooks, offload and recompute together.  (Hooks alone are in tape_test.cpp.)

#include <optional>
#include <string_view>

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

TEST_F(SavedTensors, HooksFromTwoFunctionsPackAndUnpack) {
  const Bits expected = gradients_of_gelu_chain({});
  int packed = 0, unpacked = 0, kept = 0;
  struct OnHost {  // can be moved, not copied
    std::unique_ptr<std::vector<float>> values;
    Shape shape;
    Stream* stream;
  };
  auto hooks = hooks_from(
      [&](const Tensor& t, const SavedInfo& info) -> std::optional<OnHost> {
        if (std::string_view(info.op) == "gelu" && ++kept) return {};
        ++packed;
        return OnHost{std::make_unique<std::vector<float>>(read<float>(t)), t.shape(), &t.stream()};
      },
      [&](const OnHost& saved) {
        ++unpacked;
        return make_tensor<float>(saved.shape, *saved.values, *saved.stream);
      });
  Tape tape(stream);
  const Tape::HooksScope scope(tape, hooks);
  tape.backward({Root{gelu_chain(tape.input(x)), dy}});
  EXPECT_EQ(take_gradients(), expected);
  EXPECT_EQ(packed, 7);
  EXPECT_EQ(unpacked, 7);
  EXPECT_EQ(kept, 6);
}

TEST_F(SavedTensors, WhatHooksFromTwoFunctionsPackedOutlivesThem) {
  const Bits expected = gradients_of_gelu_chain({});
  const size_t live = stream.memory().live;
  Tape tape(stream);
  Var y;
  {
    const auto owned = std::make_shared<int>(5);
    auto hooks = hooks_from([](const Tensor& t, const SavedInfo&) { return t; },
                            [owned](Tensor t) { return *owned == 5 ? t : Tensor(); });
    const Tape::HooksScope scope(tape, hooks);
    y = gelu_chain(tape.input(x));
  }
  tape.backward({Root{y, dy}});
  EXPECT_EQ(take_gradients(), expected);
  y = {};
  EXPECT_EQ(stream.memory().live, live);
}

TEST_F(SavedTensors, HooksFromTwoFunctionsThatReturnNothingAreRefused) {
  auto packs_nothing = hooks_from([](const Tensor&, const SavedInfo&) { return Tensor(); },
                                  [](const Tensor& t) { return t; });
  auto unpacks_nothing = hooks_from([](const Tensor& t, const SavedInfo&) { return t; },
                                    [](const Tensor&) { return Tensor(); });
  const auto run = [&](SavedTensorHooks& hooks) {
    Tape tape(stream);
    const Tape::HooksScope scope(tape, hooks);
    tape.backward({Root{gelu_chain(tape.input(x)), dy}});
  };
  const size_t live = stream.memory().live;
  expect_error(ErrorKind::invalid, {"linear", "pack() returned nothing"},
               [&] { run(packs_nothing); });
  expect_error(ErrorKind::invalid, {"unpack() returned nothing"}, [&] { run(unpacks_nothing); });
  EXPECT_EQ(stream.memory().live, live);
}

// Gradients are summed in memory of their own, although the caller's is referred to only once.
TEST_F(SavedTensors, ExternalMemoryIsReadAndNeverWrittenOver) {
  const Bits expected = gradients_of_gelu_chain({});
  std::vector<float> x_memory = read<float>(x), dy_memory = read<float>(dy);
  const std::vector<float> x_before = x_memory, dy_before = dy_memory;
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  for (const bool offloads : {false, true}) {
    {
      Tape tape(stream, offloads ? options(everything) : TapeOptions{});
      const Var in = tape.input(Tensor::over(x_memory.data(), x.spec(), stream));
      Var y = gelu_chain(in);
      tape.backward({Root{y, Tensor::over(dy_memory.data(), dy.spec(), stream)}});
    }
    EXPECT_EQ(take_gradients(), expected);
    stream.synchronize();
    EXPECT_EQ(x_memory, x_before);
    EXPECT_EQ(dy_memory, dy_before);
  }
  EXPECT_EQ(stream.memory().external, 0u);
  Tape tape(stream);  // gelu's gradient shares its output's, if nothing else refers to that
  const Var in = tape.input(x, true), y = gelu(in);
  tape.backward({Root{y, Tensor::over(dy_memory.data(), dy.spec(), stream)}});
  stream.synchronize();
  EXPECT_EQ(dy_memory, dy_before);
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
    const int64_t before = offloader.offloaded().tensors;
    Tape offloaded(stream, options({.placement = {Placement::keep, Placement::keep,  // x, weight
                                                  Placement::offload}}));
    EXPECT_EQ(gradients(offloaded, saved_later), expected);
    EXPECT_EQ(offloader.offloaded().tensors, before + 1);
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
