// Seven linears, annotated op by op: where each saved tensor is between forward and backward.

#include <algorithm>

#include "spool/planner/annotations.h"
#include "tests/autograd/saved_tensors_testing.h"

namespace spool::testing {
namespace {

constexpr Annotation none{};

Annotation label(int region, bool inputs, bool inside) {
  return {.region = region, .offload_inputs = inputs, .offload_inside = inside};
}

class AnnotatedNet : public ChainTest {
 protected:
  std::vector<Annotation> annotations() {
    Annotation checkpointed = label(3, true, false);
    checkpointed.checkpoint = true;
    return {label(0, true, false),
            label(0, true, false),
            label(1, true, true),
            none,
            label(2, false, true),
            checkpointed,
            none};
  }
  Plan plan(const std::vector<Annotation>& labels) {
    Tape survey(stream);
    chain(survey.input(x));
    return annotated_plan(labels, survey.program());
  }
  // The value that linear i saves as its input: x, then the previous linear's output.
  static ValueId input_of(const Tape& tape, size_t i) { return tape.nodes()[i].inputs[0]; }

  std::vector<bool> on_host(const Tape& tape) {
    std::vector<bool> all;
    for (size_t i = 0; i < 7; ++i) all.push_back(is_on_host(tape, input_of(tape, i)));
    return all;
  }
};

TEST_F(AnnotatedNet, OffloadsThreeTensorsOf192Bytes) {
  Tape tape(stream, options(plan(annotations())));
  const Var y = chain(tape.input(x));
  EXPECT_EQ(on_host(tape), (std::vector{true, false, true, false, false, true, false}));
  EXPECT_EQ(offloader.offloaded().tensors, 3);
  EXPECT_EQ(offloader.offloaded().bytes, 192);
  tape.backward({Root{y, dy}});
}

TEST_F(AnnotatedNet, HasTheBitsOfThePlainNet) {
  Tape plain(stream), annotated(stream, options(plan(annotations())));
  const Var a = chain(plain.input(x)), b = chain(annotated.input(x));
  EXPECT_EQ(values(a.tensor()), values(b.tensor()));
  plain.backward({Root{a, dy}});
  const Bits expected = take_gradients();
  annotated.backward({Root{b, dy}});
  EXPECT_EQ(take_gradients(), expected);
}

TEST_F(AnnotatedNet, RecomputesTheCheckpointOnlyIfItsOutputIsNeeded) {
  for (const bool needed : {false, true}) {
    Plan with = plan(annotations());
    Tape survey(stream);
    chain(survey.input(x));
    const ValueId out5 = survey.nodes()[5].outputs[0];
    if (needed) with.placement[out5] = Placement::recompute;
    Tape tape(stream, options(with));
    tape.backward({Root{chain(tape.input(x)), dy}});
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(tape.nodes()[i].runs, i == 5 && needed ? 2 : 1) << i;
    take_gradients();
  }
}

TEST_F(AnnotatedNet, LabelsOffloadAllOrTheInputOrTheRest) {
  const auto offloaded = [&](bool inputs, bool inside) {
    Tape tape(stream, options(plan(std::vector(7, label(0, inputs, inside)))));
    const Var y = chain(tape.input(x));
    const std::vector<bool> host = on_host(tape);
    tape.backward({Root{y, dy}});
    take_gradients();
    return std::pair(bool(host[0]), std::ranges::count(host.begin() + 1, host.end(), true));
  };
  EXPECT_EQ(offloaded(true, true), std::pair(true, std::ptrdiff_t{6}));
  EXPECT_EQ(offloaded(true, false), std::pair(true, std::ptrdiff_t{0}));
  EXPECT_EQ(offloaded(false, true), std::pair(false, std::ptrdiff_t{6}));
}

TEST_F(AnnotatedNet, RefusesRegionNumbersThatSkipOrReturn) {
  const auto with = [&](int fourth) {
    auto labels = annotations();
    labels[3] = label(fourth, false, false);
    return plan(labels);
  };
  expect_error(ErrorKind::invalid, {"region 0", "ended"}, [&] { with(0); });
  expect_error(ErrorKind::invalid, {"region 5", "2"}, [&] { with(5); });
  auto differ = annotations();
  differ[1].offload_inside = true;
  expect_error(ErrorKind::invalid, {"op 0"}, [&] { plan(differ); });
  expect_error(ErrorKind::invalid, {"1 for a tape of 7 ops"}, [&] { plan({none}); });
}

TEST_F(AnnotatedNet, CanBeWrittenWithScopes) {
  Tape tape(stream, options());
  const auto step = [&](size_t i, const Var& h) { return linear(h, weights[i]); };
  Var h = tape.input(x);
  h = segment(tape, {.offload_inputs = true}, [&] { return step(1, step(0, h)); });
  h = segment(tape, {.offload_inputs = true, .offload_inside = true}, [&] { return step(2, h); });
  h = step(3, h);
  h = segment(tape, {.offload_inside = true}, [&] { return step(4, h); });
  h = checkpoint(tape, [&] { return step(5, h); }, {.offload_inputs = true});
  h = step(6, h);
  EXPECT_EQ(on_host(tape), (std::vector{true, false, true, false, false, true, false}));
  tape.backward({Root{h, dy}});
  const Bits by_scopes = take_gradients();
  EXPECT_EQ(by_scopes, gradients_of_chain({}));
}

}  // namespace
}  // namespace spool::testing
