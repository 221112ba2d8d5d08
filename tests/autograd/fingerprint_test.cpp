// Fingerprints of tapes: alike for the same model wherever it is built, unlike for another, and a
// plan for another tape refused at the first node that differs.

#include "spool/autograd/fingerprint.h"

#include <algorithm>
#include <set>

#include "spool/autograd/ops.h"
#include "spool/models/families/gpt2.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Fingerprints = std::vector<uint64_t>;

struct Built {
  Gpt2Config model = {.layers = 2, .heads = 2, .channels = 8, .context = 16, .vocabulary = 70};
  int64_t batch = 2, length = 4;
  DType dtype = DType::f32;
  float dropout = 0.1f;
  std::string frozen = "";
  TapeOptions tape = {};
};

Tensor zeros(const Shape& shape, Stream& stream) {
  const Tensor t({shape, DType::i32}, stream);
  write<int32_t>(t, std::vector<int32_t>(static_cast<size_t>(shape.numel())));
  return t;
}

Fingerprints of(const Built& b, Stream& stream) {
  Gpt2 model(b.model, b.dtype, stream);
  for (Parameter* p : model.parameters()) p->trainable = p->name != b.frozen;
  model.initialise(/*seed=*/1);
  TapeOptions options = b.tape;
  options.random = zeros({4}, stream);
  Tape tape(stream, options);
  const Var x = tape.input(zeros({b.batch, b.length}, stream));
  model.loss(x, x, b.dropout);
  return fingerprints(tape);
}

class FingerprintTest : public ::testing::Test {
 protected:
  CpuStream stream{size_t{64} << 20, 1};
};

TEST_F(FingerprintTest, TheSameModelHasTheSameOnEveryDevice) {
  const Fingerprints first = of({}, stream);
  EXPECT_EQ(of({}, stream), first);
  MetaStream meta(Machine{});
  EXPECT_EQ(of({}, meta), first);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), first.size());
}

TEST_F(FingerprintTest, EverySingleChangeMakesAnother) {
  const auto with = [](auto change) {
    Built b;
    change(b);
    return b;
  };
  const std::vector<Built> all = {
      {},
      with([](Built& b) { b.model.layers = 3; }),
      with([](Built& b) { b.model.heads = 4; }),
      with([](Built& b) { b.model.channels = 16; }),
      with([](Built& b) { b.model.context = 32; }),
      with([](Built& b) { b.model.vocabulary = 71; }),  // as many rows of weight
      with([](Built& b) { b.model.epsilon = 1e-6; }),
      with([](Built& b) { b.model.epsilon = std::nextafter(1e-5, 1.0); }),
      with([](Built& b) { b.model.gelu = GeluForm::exact; }),
      with([](Built& b) { b.batch = 3; }),
      with([](Built& b) { b.length = 5; }),
      with([](Built& b) {
        std::tie(b.batch, b.length) = std::pair{4, 2};
      }),
      with([](Built& b) { b.dtype = DType::bf16; }),
      with([](Built& b) { b.dropout = 0.2f; }),
      with([](Built& b) { b.dropout = 0; }),
      with([](Built& b) { b.frozen = "wpe.weight"; }),
      with([](Built& b) { b.tape.backward_follows = true; }),
      with([](Built& b) { b.tape.recording = false; }),
  };
  std::vector<uint64_t> seen;
  for (const Built& b : all) {
    const uint64_t last = of(b, stream).back();
    EXPECT_EQ(std::ranges::count(seen, last), 0) << "change " << seen.size();
    seen.push_back(last);
  }
}

// What a plan may not depend on, and the numbers that another machine must find too.
TEST_F(FingerprintTest, IsAlwaysThatOfTheSameOps) {
  Parameter weight{.name = "w", .data = normal({3, 3}, DType::f32, stream, 1)};
  const Tensor x = normal({2, 3}, DType::f32, stream, 2);
  const auto made = [&](const Plan& plan) {
    Tape tape(stream, {.plan = plan});
    gelu(scale(linear(tape.input(x), weight), -0.1));
    return fingerprints(tape);
  };
  const Fingerprints expected = {0xc7ea3cbed51c5ca8, 0x93b8d9fc73acde96, 0xdca6291da81ecbaf};
  EXPECT_EQ(made({}), expected);
  EXPECT_EQ(made({.placement = std::vector(5, Placement::recompute)}), expected);
}

TEST_F(FingerprintTest, OrderAndWiringCount) {
  const Tensor x = normal({2, 3}, DType::f32, stream, 2);
  const auto made = [&](auto build) {
    Tape tape(stream);
    const Var a = tape.input(x), b = tape.input(x, true);
    build(a, b);
    return fingerprints(tape).back();
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

TEST_F(FingerprintTest, EveryOpTellsItsAttributes) {
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

class RefusalTest : public FingerprintTest {
 protected:
  Parameter weight{.name = "w", .data = normal({3, 3}, DType::f32, stream, 1)};
  Tensor x = normal({1, 3}, DType::f32, stream, 2);
  Tensor dy = normal({1, 3}, DType::f32, stream, 3);
  Plan plan = plan_for_a_net();

  Var net(Tape& tape) { return scale(gelu(linear(tape.input(x), weight)), 3); }
  Plan plan_for_a_net() {
    Tape tape(stream);
    net(tape);
    return {.placement = std::vector(5, Placement::recompute), .fingerprints = fingerprints(tape)};
  }
};

TEST_F(RefusalTest, TheTapeItWasMadeForIsTaken) {
  Tape tape(stream, {.plan = plan});
  tape.backward({Root{net(tape), dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(RefusalTest, AnotherTapeIsRefusedAtTheNodeThatDiffersAndLeftAsItWas) {
  Tape tape(stream, {.plan = plan});
  const Var h = linear(tape.input(x), weight);
  const size_t live = stream.memory().live, values_before = tape.values().size();
  EXPECT_EQ(error_of([&] { gelu(h, GeluForm::exact); }),
            "plan: node 1 is gelu (form exact) f32 (1, 3), and the plan was made for a tape that "
            "differs from there on (layers, batch, sequence, type or options of the model); make a "
            "plan for this one");
  Parameter other{.name = "other", .data = weight.data};
  EXPECT_TRUE(contains(error_of([&] { linear(h, other); }), "plan: node 1 is linear f32 (1, 3)"));
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_EQ(tape.values().size(), values_before);
  EXPECT_EQ(tape.nodes().size(), 1u);
  tape.backward({Root{scale(gelu(h), 3), dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(RefusalTest, ATapeThatIsLongerOrShorterIsRefused) {
  Tape tape(stream, {.plan = plan});
  const Var h = gelu(linear(tape.input(x), weight));
  EXPECT_TRUE(contains(error_of([&] {
                         tape.backward({Root{h, dy}});
                       }),
                       "made for a tape of 3 nodes, and this one has 2 (layers"));
  const Var y = scale(h, 3);
  EXPECT_TRUE(contains(error_of([&] { gelu(y); }),
                       "plan: node 3 is gelu (form tanh) f32 (1, 3), and the plan was made for a "
                       "tape that ends before it, after 3 nodes"));
  tape.backward({Root{y, dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(RefusalTest, ValuesBeyondTheTapeAreRefused) {
  plan.placement.resize(9, Placement::keep);
  Tape tape(stream, {.plan = plan});
  EXPECT_TRUE(contains(error_of([&] { net(tape); }), "5 values, and the plan places 9"));
}

}  // namespace
}  // namespace spool::testing
