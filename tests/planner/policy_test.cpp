// The words of policies: what to recompute, what to offload, where the optimizer's state is.

#include "spool/planner/policy.h"

#include "spool/autograd/tape.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(PolicyWords, NameTheKnownOnesWhereTheyAreWrong) {
  Policy policy;
  expect_error(ErrorKind::invalid, {"'relu'", "attention"},
               [&] { set_recompute(policy, "norms,relu"); });
  expect_error(ErrorKind::invalid, {"''"}, [&] { set_recompute(policy, ""); });
  EXPECT_FALSE(parse<Offloading>("some"));
  EXPECT_FALSE(parse<OptimizerState>("disk"));
}

TEST(PolicyWords, GeluAndActivationsAreTheSame) {
  for (const char* word : {"gelu", "activations", "activations,gelu"}) {
    Policy policy;
    set_recompute(policy, word);
    EXPECT_TRUE(policy.activations);
    EXPECT_EQ(recompute_list(policy), "gelu");
  }
}

// An op of any kind with a name that does not reveal it: y = x, and a statistic of each row.
struct PlainOp final : Op {
  OpKind kind_;
  explicit PlainOp(OpKind k) : kind_(k) {}
  const char* name() const override { return "plain"; }
  OpKind kind() const override { return kind_; }
  const char* indices() const override { return "nc->nc,n"; }
  Specs infer(const Specs& in) const override { return {in[0], {Shape{in[0].shape.rows()}}}; }
  void forward(Forward&) const override {}
  Slots saves(const Needs&) const override { return {out(0), out(1)}; }
  void backward(Backward& b) const override { b.pass(0); }
};

// The placements of the outputs of an op of this kind.
std::vector<Placement> placements_of(OpKind kind, const char* recompute) {
  Policy policy;
  set_recompute(policy, recompute);
  const Plan plan = plan_from_policy(policy, {}, [&](const Plan& p) {
    RehearsedTape rehearsed;
    MetaStream stream{Machine{}};
    Tape tape(stream, {.plan = p, .survey = &rehearsed.survey});
    const Var x = tape.input(Tensor({Shape{8, 8}}, stream), /*needs_grad=*/true);
    const Var y = apply<PlainOp>(tape, {x}, kind);
    tape.backward({Root{y, Tensor(y.spec(), stream)}});
    rehearsed.program = tape.take_program();
    return rehearsed;
  });
  return {plan.placement[1], plan.placement[2]};
}

TEST(PolicyKinds, ACustomOpIsRecomputedByItsKind) {
  using enum Placement;
  using Both = std::vector<Placement>;
  EXPECT_EQ(placements_of(OpKind::norm, "norms"), (Both{recompute, keep}));  // statistics stay
  EXPECT_EQ(placements_of(OpKind::activation, "gelu"), (Both{recompute, recompute}));
  EXPECT_EQ(placements_of(OpKind::attention, "attention"), (Both{recompute, recompute}));
  EXPECT_EQ(placements_of(OpKind::norm, "gelu,attention"), (Both{keep, keep}));
  EXPECT_EQ(placements_of(OpKind::product, "norms,gelu,attention"), (Both{keep, keep}));
  EXPECT_EQ(placements_of(OpKind::other, "norms,gelu,attention"), (Both{keep, keep}));
}

}  // namespace
}  // namespace spool::testing
