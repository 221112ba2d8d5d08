// runs: numbers
// Fingerprints of tapes: known values, what changes them, and plans for another tape refused at the
// first node that differs.

#include "spool/autograd/fingerprint.h"

#include <set>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Fingerprints = std::vector<uint64_t>;

Tensor zeros(const Shape& shape, Stream& stream) {
  const Tensor t({shape, DType::i32}, stream);
  write<int32_t>(t, std::vector<int32_t>(static_cast<size_t>(shape.numel())));
  return t;
}

class Fingerprint : public ::testing::Test {
 protected:
  CpuStream stream{size_t{64} << 20, 1};
};

// Every machine finds these values, and a plan does not change them.
TEST_F(Fingerprint, HasTheKnownValues) {
  Parameter weight{.name = "w", .data = normal({3, 3}, DType::f32, stream, 1)};
  const Tensor x = normal({2, 3}, DType::f32, stream, 2);
  const auto made = [&](const Plan& plan) {
    Tape tape(stream, {.plan = plan});
    gelu(scale(linear(tape.input(x), weight), -0.1));
    return fingerprints(tape.program());
  };
  const Fingerprints expected = {0xc7ea3cbed51c5ca8, 0x93b8d9fc73acde96, 0xdca6291da81ecbaf};
  EXPECT_EQ(made({}), expected);
  EXPECT_EQ(made({.placement = std::vector(5, Placement::recompute)}), expected);
}

TEST_F(Fingerprint, DependsOnOrderAndWiring) {
  const Tensor x = normal({2, 3}, DType::f32, stream, 2);
  const auto made = [&](auto build) {
    Tape tape(stream);
    const Var a = tape.input(x), b = tape.input(x, true);
    build(a, b);
    return fingerprints(tape.program()).back();
  };
  const std::set<uint64_t> all = {
      made([](const Var& a, const Var& b) { add(a, b); }),
      made([](const Var& a, const Var& b) { add(b, a); }),
      made([](const Var&, const Var& b) { add(b, b); }),
      made([](const Var& a, const Var&) { add(a, a); }),
      made([](const Var& a, const Var&) { gelu(scale(a, 2)); }),
      made([](const Var& a, const Var&) { scale(gelu(a), 2); }),
      made([](const Var& a, const Var&) { return gelu(a), scale(a, 2); }),
  };
  EXPECT_EQ(all.size(), 7u);
}

TEST_F(Fingerprint, IncludesAttributes) {
  const Tensor qkv = normal({2, 3, 12}, DType::f32, stream, 1);
  Parameter head{.name = "head", .data = normal({5, 12}, DType::f32, stream, 2)};
  Tape tape(stream);
  const Var x = tape.input(qkv), t = tape.input(zeros({2, 3}, stream));
  attention(x, {.query = 2, .key = 1});
  linear_cross_entropy(x, head, t, {.options = {.vocabulary = 4, .z_loss = 1e-4f}});
  EXPECT_EQ(tape.nodes()[0].op->attributes(), "query heads 2, key heads 1");
  EXPECT_EQ(tape.nodes()[1].op->attributes(),
            "reduction mean, ignored target -100, vocabulary 4, label smoothing 0, z loss 1e-04, "
            "soft cap 0, gradient in forward no");
  add(x, x);
  EXPECT_EQ(tape.nodes()[2].op->attributes(), "");
}

class FingerprintedPlan : public Fingerprint {
 protected:
  Parameter weight{.name = "w", .data = normal({3, 3}, DType::f32, stream, 1)};
  Tensor x = normal({1, 3}, DType::f32, stream, 2);
  Tensor dy = normal({1, 3}, DType::f32, stream, 3);
  Plan plan = plan_for_a_net();

  Var net(Tape& tape) { return scale(gelu(linear(tape.input(x), weight)), 3); }
  Plan plan_for_a_net() {
    Tape tape(stream);
    net(tape);
    return {.placement = std::vector(5, Placement::recompute),
            .fingerprints = fingerprints(tape.program())};
  }
};

TEST_F(FingerprintedPlan, FitsTheTapeItWasMadeFor) {
  Tape tape(stream, {.plan = plan});
  tape.backward({Root{net(tape), dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(FingerprintedPlan, RefusesTheFirstNodeThatDiffersAndLeavesTheTapeAsItWas) {
  Tape tape(stream, {.plan = plan});
  const Var h = linear(tape.input(x), weight);
  const size_t live = stream.memory().live, values_before = tape.values().size();
  expect_error(ErrorKind::invalid, {"plan: node 1", "gelu (form exact) f32 (1, 3)", "differs"},
               [&] { gelu(h, GeluForm::exact); });
  Parameter other{.name = "other", .data = weight.data};
  expect_error(ErrorKind::invalid, {"plan: node 1", "linear f32 (1, 3)"},
               [&] { linear(h, other); });
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_EQ(tape.values().size(), values_before);
  EXPECT_EQ(tape.nodes().size(), 1u);
  tape.backward({Root{scale(gelu(h), 3), dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(FingerprintedPlan, RefusesALongerAndAShorterTape) {
  Tape tape(stream, {.plan = plan});
  const Var h = gelu(linear(tape.input(x), weight));
  expect_error(ErrorKind::invalid, {"plan: ", "3 nodes", "has 2"}, [&] {
    tape.backward({Root{h, dy}});
  });
  const Var y = scale(h, 3);
  expect_error(ErrorKind::invalid, {"plan: node 3", "gelu (form tanh) f32 (1, 3)", "3 nodes"},
               [&] { gelu(y); });
  tape.backward({Root{y, dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(FingerprintedPlan, RefusesPlacementsOfValuesTheTapeLacks) {
  plan.placement.resize(9, Placement::keep);
  Tape tape(stream, {.plan = plan});
  expect_error(ErrorKind::invalid, {"plan", "5 values", "9"}, [&] { net(tape); });
}

}  // namespace
}  // namespace spool::testing
