// What users of saved tensors rely on, case by case: offload, recompute, and both.  (Hooks are in
// tape_test.cpp, mixtures of all at random in plan_mixtures_test.cpp.)

#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "spool/autograd/ops.h"
#include "tests/autograd/saved_tensors_testing.h"
#include "tests/runtime/temporary_directory.h"

namespace spool::testing {
namespace {

// ------------------------------------------------------------------------------------ offload

// 7.
TEST_F(SavedTensors, ParametersAndTheCallersInputsStayUnlessThePlanSaysSo) {
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  Tape tape(stream, options(everything));
  const std::vector<double> before = values(x);
  const Var y = chain(tape.input(x));
  EXPECT_TRUE(is_on_host(tape, tape.nodes()[0].inputs[0]));
  EXPECT_TRUE(is_on_host(tape, tape.nodes()[1].inputs[1])) << "a parameter";
  EXPECT_EQ(values(x), before);
  tape.backward({Root{y, dy}});
  EXPECT_EQ(values(x), before);
  const Bits found = take_gradients();
  EXPECT_EQ(found, gradients_of_chain({}));

  Tape scoped(stream, options());
  const Tape::Scope scope(scoped, {.offload_inputs = true, .offload_inside = true});
  const Var z = chain(scoped.input(x));
  EXPECT_FALSE(is_on_host(scoped, scoped.nodes()[1].inputs[1])) << "a parameter";
  Tape kept(stream, options());
  chain(kept.input(x));
  for (size_t v = 0; v < kept.values().size(); ++v) {
    EXPECT_FALSE(is_on_host(kept, static_cast<ValueId>(v)));
  }
}

// 10.
TEST_F(SavedTensors, OneStorageTravelsOnce) {
  Tape tape(stream, options({.placement = std::vector(8, Placement::offload)}));
  const Var a = tape.input(x), b = tape.input(x);
  const Var y = add(linear(a, weights[0]), linear(b, weights[1]));
  EXPECT_EQ(offloader.sent().tensors, 1);
  tape.backward({Root{y, dy}});
  const Bits once = take_gradients();
  Tape kept(stream);
  const Var c = kept.input(x);
  kept.backward({Root{add(linear(c, weights[0]), linear(c, weights[1])), dy}});
  EXPECT_EQ(take_gradients(), once);
}

TEST_F(SavedTensors, WhatAnEarlierTapeSentIsNotTakenForWhatIsThereNow) {
  const Plan everything{.placement = std::vector(8, Placement::offload)};
  Tape before(stream, options(everything));
  const Var y = linear(before.input(x), weights[0]);
  link.synchronize();  // what is on its way may not change
  write<float>(x, std::vector<float>(16, 2));
  const Bits now = gradients_of_chain(options(everything));
  EXPECT_EQ(now, gradients_of_chain({}));
}

TEST_F(SavedTensors, TensorsOfAnySizeTravelRight) {
  for (const Shape& shape : {Shape{0, 4}, Shape{1}, Shape{1, 1}, Shape{3, 7}, Shape{129, 5}}) {
    for (const DType type : {DType::bf16, DType::f32, DType::f64}) {
      for (const int64_t rows : {int64_t{-1}, int64_t{0}, shape[0] / 2, shape[0]}) {
        const Tensor v = normal(shape, type, stream, 9), d = normal(shape, type, stream, 10);
        const auto gradient = [&](const Plan& plan) {
          Tape tape(stream, options(plan));
          const Var in = tape.input(v, true);
          const Var y = scale(scale(gelu(scale(in, 2)), 3), 4);  // gelu saves value 1
          tape.backward({Root{y, d}});
          return values(tape.grad(in));
        };
        Plan plan{.placement = std::vector(2, Placement::offload)};
        plan.offloads.push_back({.value = 1, .rows = rows, .release = 2, .fetch = 2});
        const int64_t before = offloader.returned().tensors;
        EXPECT_EQ(gradient(plan), gradient({})) << shape << ' ' << rows;
        EXPECT_EQ(offloader.returned().tensors, before + 1);
      }
    }
  }
}

// 11.
TEST_F(SavedTensors, AHostThatIsTooSmallIsASentenceAndLeaksNothing) {
  const Bits expected = gradients_of_chain({});
  const size_t live = stream.memory().live;
  HostLink small(stream, 2 * HostLink::alignment);
  Offloader to_small(small);
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  const std::string text =
      error_of([&] { gradients_of_chain({.plan = everything, .offloader = &to_small}); });
  EXPECT_TRUE(contains(text, "host: ")) << text;
  EXPECT_TRUE(contains(text, " the arena needs ")) << text;
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_EQ(small.memory().live, 0u);
  EXPECT_EQ(gradients_of_chain({}), expected);
}

TEST_F(SavedTensors, WithoutAnOffloaderOrADirectoryIsASentence) {
  const Plan everything{.placement = std::vector(64, Placement::offload)};
  EXPECT_TRUE(contains(error_of([&] { gradients_of_chain({.plan = everything}); }),
                       "the tape has no offloader"));
  Plan to_disk = everything;
  to_disk.offloads.push_back({.value = 2, .target = OffloadTarget::disk});
  EXPECT_TRUE(contains(error_of([&] { gradients_of_chain(options(to_disk)); }), "no directory"));
  Plan too_many = everything;
  too_many.offloads.push_back({.value = 2, .rows = 5});
  EXPECT_TRUE(contains(error_of([&] { gradients_of_chain(options(too_many)); }), "but it has 4"));
}

TEST_F(SavedTensors, AFileServesAsTheHostDoes) {
  const TemporaryDirectory directory;
  Offloader to_disk(link, directory.path(), 64 * HostLink::alignment);
  Plan plan{.placement = std::vector(64, Placement::offload)};
  for (ValueId v = 0; v < 32; v += 2) {
    plan.offloads.push_back({.value = v, .rows = v % 8 ? -1 : 3, .target = OffloadTarget::disk});
  }
  const Bits expected = gradients_of_gelu_chain({});
  EXPECT_EQ(gradients_of_gelu_chain({.plan = plan, .offloader = &to_disk}), expected);
  EXPECT_GT(to_disk.disk().peak, 0u);
  EXPECT_EQ(to_disk.disk().live, 0u);
  EXPECT_EQ(link.memory().live, 0u);
}

TEST_F(SavedTensors, AFileThatIsTooSmallIsASentence) {
  const TemporaryDirectory directory;
  Offloader to_disk(link, directory.path(), HostLink::alignment);
  Plan plan{.placement = std::vector(64, Placement::offload)};
  for (ValueId v = 0; v < 32; ++v) {
    plan.offloads.push_back({.value = v, .target = OffloadTarget::disk});
  }
  const size_t live = stream.memory().live;
  const std::string text =
      error_of([&] { gradients_of_chain({.plan = plan, .offloader = &to_disk}); });
  EXPECT_TRUE(contains(text, "disk: ")) << text;
  EXPECT_EQ(stream.memory().live, live);
}

// As a disk does that had no room reserved: no file may grow beyond a few pages from here on.
TEST_F(SavedTensors, AFileThatFillsUpInTheMiddleOfAStepIsASentenceAndLeaksNothing) {
  const TemporaryDirectory directory;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const size_t live = stream.memory().live;
  Plan plan{.placement = std::vector(64, Placement::offload)};
  for (ValueId v = 0; v < 32; ++v) {
    plan.offloads.push_back({.value = v, .target = OffloadTarget::disk});
  }
  std::string text;
  {
    HostLink own(stream, plenty);
    Offloader to_disk(own, directory.path(), 64 * HostLink::alignment);
    rlimit few = before;
    few.rlim_cur = 3 * HostLink::alignment;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    text = error_of([&] { gradients_of_gelu_chain({.plan = plan, .offloader = &to_disk}); });
    EXPECT_EQ(own.memory().live, 0u);
    EXPECT_EQ(to_disk.disk().live, 0u);
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_TRUE(contains(text, directory.path().string())) << text;
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_FALSE(gradients_of_gelu_chain({}).front().empty());
}

// 12.
TEST_F(SavedTensors, SendingTheLastOnesMadeIsLegal) {
  for (const NodeId release : {1, 3, 6, 9}) {  // the last of them never comes
    Plan plan{.placement = std::vector(64, Placement::offload)};
    for (ValueId v = 0; v < 16; ++v) {
      plan.offloads.push_back({.value = v, .release = release, .fetch = 0});
    }
    const int64_t before = offloader.returned().tensors;
    EXPECT_EQ(gradients_of_chain(options(plan)), gradients_of_chain({}));
    EXPECT_EQ(offloader.returned().tensors > before, release < 7) << release;
  }
}

TEST_F(SavedTensors, OffloadingLowersThePeakAndTheMemoryComesBackInTime) {
  const auto peak = [&](Placement placement) {
    CpuStream fresh(plenty, 1);
    HostLink own(fresh, plenty);
    Offloader to_host(own);
    Tape tape(fresh, {.plan = {.placement = std::vector(64, placement)}, .offloader = &to_host});
    Var h = tape.input(normal({256, 64}, DType::f32, fresh, 1), true);
    for (int i = 0; i < 12; ++i) h = gelu(h);
    const Tensor d = normal({256, 64}, DType::f32, fresh, 2);
    tape.backward({Root{h, d}});
    return fresh.memory().peak;
  };
  EXPECT_LT(peak(Placement::offload), peak(Placement::keep) * 2 / 3);
}

// ---------------------------------------------------------------------------------- recompute

// 13, 15.
TEST_F(SavedTensors, OpsRunAgainOnceAndOnlyWhatIsNeeded) {
  const Bits expected = gradients_of_gelu_chain({});
  Tape tape(stream);
  Var h = tape.input(x);
  h = checkpoint(tape, [&] { return gelu_chain(h); });
  const uint64_t before = stream.launches();
  tape.backward({Root{h, dy}});
  // Of 7 linears and gelus the last gelu is not needed again.  Backward launches 2 for each linear
  // but the first, which has no dx, and 1 for each gelu.
  EXPECT_EQ(stream.launches() - before, 13u + 13u + 7u);
  EXPECT_EQ(tape.nodes().back().runs, 1);
  for (size_t i = 0; i + 1 < tape.nodes().size(); ++i) EXPECT_EQ(tape.nodes()[i].runs, 2) << i;
  EXPECT_EQ(take_gradients(), expected);
}

TEST_F(SavedTensors, AnOpOfARegionWhoseOutputIsRecomputedRunsThreeTimesAtMost) {
  Tape survey(stream);
  gelu_chain(survey.input(x));
  Plan plan{.placement = std::vector(survey.values().size(), Placement::keep),
            .regions = {{0, 5}, {6, 13}}};
  plan.placement[survey.nodes()[5].outputs[0]] = Placement::recompute;
  Tape tape(stream, options(plan));
  tape.backward({Root{gelu_chain(tape.input(x)), dy}});
  const int expected[] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1};
  for (size_t i = 0; i < 14; ++i) EXPECT_EQ(tape.nodes()[i].runs, expected[i]) << i;
  const Bits found = take_gradients();
  EXPECT_EQ(found, gradients_of_gelu_chain({}));
}

TEST_F(SavedTensors, NestedCheckpointsRunAnOpAtDepthDAtMostDPlusOneTimes) {
  const Bits expected = gradients_of_gelu_chain({});
  Tape tape(stream);
  size_t live_inside = 0;
  const auto step = [&](size_t i, const Var& h) { return gelu(linear(h, weights[i])); };
  const Var first = tape.input(x);
  const size_t before = stream.memory().live;
  Var h = checkpoint(tape, [&] {
    Var a = step(0, first);
    a = checkpoint(tape, [&] {
      Var b = step(2, step(1, a));
      b = checkpoint(tape, [&] { return step(4, step(3, b)); });
      return step(5, b);
    });
    live_inside = stream.memory().live;
    return step(6, a);
  });
  EXPECT_EQ(stream.memory().live - before, 512u) << "what left it is all there is";
  tape.backward({Root{h, dy}});
  const auto runs = [&](size_t weight) { return tape.nodes()[2 * weight].runs; };
  for (const size_t depth_1 : {0u, 6u}) EXPECT_EQ(runs(depth_1), 2);
  for (const size_t depth_2 : {1u, 2u, 5u}) EXPECT_EQ(runs(depth_2), 3);
  for (const size_t depth_3 : {3u, 4u}) EXPECT_EQ(runs(depth_3), 4);
  EXPECT_EQ(take_gradients(), expected);
}

// 14.
TEST_F(SavedTensors, DropoutThatRunsAgainHasItsMaskAndLeavesTheRandomStateAlone) {
  const std::vector<int32_t> state{1, 2, 3, 4};
  const Tensor random = make_tensor<int32_t>({4}, state, stream);
  const auto gradients = [&](const Plan& plan) {
    Tape tape(stream, {.plan = plan, .random = random});
    Var h = tape.input(x);
    for (Parameter& w : weights) h = gelu(dropout(linear(h, w), 0.5f));
    tape.backward({Root{h, dy}});
    return take_gradients();
  };
  EXPECT_EQ(gradients({.regions = {{0, 20}}}), gradients({}));
  EXPECT_EQ(gradients({.placement = std::vector(64, Placement::recompute)}), gradients({}));
  EXPECT_EQ(read<int32_t>(random), state);
}

TEST_F(SavedTensors, ARegionAroundAnOpThatCannotRunAgainIsRefused) {
  Tape tape(stream, {.plan = {.regions = {{0, 1}}}, .backward_follows = true});
  const std::vector<int32_t> ids{0, 1, 2, 3};
  const Var targets = tape.input(make_tensor<int32_t>({4}, ids, stream));
  const Var h = linear(tape.input(x), weights[0]);
  const size_t live = stream.memory().live;
  const std::string text = error_of([&] { linear_cross_entropy(h, weights[1], targets, {}); });
  EXPECT_TRUE(contains(text, "linear_cross_entropy cannot be recomputed")) << text;
  EXPECT_EQ(stream.memory().live, live);
  tape.backward({Root{h, dy}});
}

TEST_F(SavedTensors, RegionsThatOverlapAreRefused) {
  const auto refused = [&](std::vector<Region> regions) {
    return error_of([&] { Tape(stream, {.plan = {.regions = std::move(regions)}}); });
  };
  EXPECT_TRUE(contains(refused({{0, 3}, {2, 5}}), "must nest or be disjoint"));
  EXPECT_NE(refused({{4, 2}}), "");
  EXPECT_NE(refused({{4, 5}, {0, 1}}), "");
  EXPECT_EQ(refused({{0, 9}, {0, 3}, {4, 9}, {5, 5}, {12, 13}}), "");
}

// A hook of the user goes before the plan.
TEST_F(SavedTensors, HooksGoBeforeThePlan) {
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
  EXPECT_EQ(hooks.packed, 13);  // what 7 linears and 6 gelus made and is saved
  tape.backward({Root{y, dy}});
  const Bits found = take_gradients();
  EXPECT_EQ(found, gradients_of_gelu_chain({}));
}

// 17.
TEST_F(SavedTensors, ChainsOfRecomputeAndOffloadWorkInEveryOrder) {
  const Bits expected = gradients_of_gelu_chain({});
  constexpr Placement all[] = {Placement::keep, Placement::recompute, Placement::offload};
  Tape survey(stream);
  gelu_chain(survey.input(x));
  for (int pattern = 0; pattern < 243; ++pattern) {  // of five, repeated along the chain
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
