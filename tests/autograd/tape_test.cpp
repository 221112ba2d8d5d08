// runs: threads
// The tape: which ops compute gradients, where these go, what is saved, and errors that leave
// nothing behind.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/integer.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class TapeTest : public ::testing::Test {
 protected:
  CpuStream stream{size_t{64} << 20, 2};
  Parameter make(Name name, const Shape& shape, uint64_t seed, DType type = DType::f64) {
    return {.name = name, .data = normal(shape, type, stream, seed)};
  }
  std::vector<double> gradient(const Parameter& p) { return values(p.grad); }
};

// A small MLP with a residual: y = x + fc2(gelu(fc1(norm(x)))).
struct Mlp {
  Parameter norm, norm_bias, fc1, fc2;
  Var operator()(const Var& x) {
    Var h = layer_norm(x, norm, norm_bias);
    h = linear(h, fc1);
    h = gelu(h);
    h = linear(h, fc2);
    return add(x, h);
  }
  std::vector<Parameter*> parameters() { return {&norm, &norm_bias, &fc1, &fc2}; }
};

class MlpTape : public TapeTest {
 protected:
  Mlp mlp{.norm = make("norm", {6}, 1),
          .norm_bias = make("norm_bias", {6}, 2),
          .fc1 = make("fc1", {10, 6}, 3),
          .fc2 = make("fc2", {6, 10}, 4)};
  Tensor x = normal({7, 6}, DType::f64, stream, 5);
  Tensor dy = normal({7, 6}, DType::f64, stream, 6);

  std::vector<std::vector<double>> gradients(TapeOptions options = {},
                                             SavedTensorHooks* hooks = nullptr) {
    Tape tape(stream, std::move(options));
    {
      std::optional<Tape::HooksScope> scope;
      if (hooks) scope.emplace(tape, *hooks);
      const Var y = mlp(tape.input(x));
      tape.backward({Root{y, dy}});
    }
    return take_gradients();
  }
  std::vector<std::vector<double>> take_gradients() {
    std::vector<std::vector<double>> all;
    for (Parameter* p : mlp.parameters()) {
      all.push_back(values(p->grad));
      p->grad = {};
    }
    return all;
  }
};

class Counting : public SavedTensorHooks {
 public:
  std::vector<int32_t> packed;
  int unpacked = 0;
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
    packed.push_back(info.value);
    struct Saved : SavedTensor {
      Tensor tensor;
      int* count;
      Tensor unpack() override {
        ++*count;
        return tensor;
      }
    };
    auto saved = std::make_unique<Saved>();
    saved->tensor = t;
    saved->count = &unpacked;
    return saved;
  }
};

TEST_F(MlpTape, CallsHooksOncePerSavedValue) {
  const auto plain = gradients();
  Counting hooks;
  EXPECT_EQ(gradients({}, &hooks), plain);
  // mean, rstd, and the outputs of norm, fc1 and gelu; neither the caller's x nor parameters.
  EXPECT_EQ(hooks.packed.size(), 5u);
  EXPECT_EQ(hooks.unpacked, 5);
}

TEST_F(MlpTape, TheInnermostHooksApplyUntilAnExceptionLeavesTheirScope) {
  Tape tape(stream);
  Counting outer, inner;
  const Tape::HooksScope outside(tape, outer);
  Var h = linear(tape.input(x), mlp.fc1);
  try {
    const Tape::HooksScope inside(tape, inner);
    h = gelu(h);
    fail(ErrorKind::invalid, "leaving by an exception");
  } catch (const Error&) {
  }
  EXPECT_EQ(inner.packed.size(), 1u);
  linear(h, mlp.fc2);
  EXPECT_EQ(inner.packed.size(), 1u);
  EXPECT_EQ(outer.packed.size(), 1u);
}

// Fails at one call of pack, or at every unpack.
class Failing : public Counting {
 public:
  int fail_pack_at = -1;
  bool fail_unpack = false, empty_pack = false;
  Spec unpack_as = {};
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo& info) override {
    check(static_cast<int>(packed.size()) != fail_pack_at, "pack failed");
    if (empty_pack) return nullptr;
    Counting::pack(t, info);
    struct Saved : SavedTensor {
      Tensor tensor;
      Failing* hooks;
      Tensor unpack() override {
        check(!hooks->fail_unpack, "unpack failed");
        if (hooks->unpack_as == Spec{}) return {};
        return {hooks->unpack_as, tensor.stream()};
      }
    };
    auto saved = std::make_unique<Saved>();
    saved->tensor = t;
    saved->hooks = this;
    return saved;
  }
};

TEST_F(MlpTape, AFailedPackLeavesTheTapeAsItWas) {
  const auto plain = gradients();
  const size_t live = stream.memory().live;
  for (int at = 0; at < 5; ++at) {
    Failing hooks;
    hooks.fail_pack_at = at;
    expect_error(ErrorKind::invalid, {"pack failed"}, [&] { gradients({}, &hooks); });
    EXPECT_EQ(stream.memory().live, live);
  }
  Tape tape(stream);
  Failing hooks;
  hooks.fail_pack_at = 1;
  {
    const Tape::HooksScope scope(tape, hooks);
    expect_error(ErrorKind::invalid, {"pack failed"},
                 [&] { layer_norm(tape.input(x), mlp.norm, mlp.norm_bias); });
  }
  EXPECT_EQ(tape.nodes().size(), 0u);
  tape.backward({Root{mlp(tape.input(x)), dy}});
  EXPECT_EQ(take_gradients(), plain);
}

TEST_F(MlpTape, AFailedUnpackIsReportedAndLeaksNothing) {
  const size_t live = stream.memory().live;
  Failing throws;
  throws.fail_unpack = true;
  const auto expect_refused = [&](std::initializer_list<std::string_view> words, Failing& hooks) {
    expect_error(ErrorKind::invalid, words, [&] { gradients({}, &hooks); });
  };
  expect_refused({"unpack failed"}, throws);
  Failing absent;
  expect_refused({"unpack()", "nothing"}, absent);
  Failing other;
  other.unpack_as = {Shape{3}, DType::f32};
  expect_refused({"gelu", "f32 (3)", "f64 (7, 10)"}, other);
  Failing empty;
  empty.empty_pack = true;
  expect_refused({"pack()", "nothing"}, empty);
  EXPECT_EQ(stream.memory().live, live);
}

TEST_F(MlpTape, GoesBackwardOnceAndFreesWhatItSaved) {
  Tape tape(stream);
  const Var input = tape.input(x, true);
  std::optional<Var> y = mlp(input);
  const size_t before = stream.memory().live;
  tape.backward({Root{*y, dy}});
  expect_error(ErrorKind::invalid, {"backward", "on this tape before"}, [&] {
    tape.backward({Root{*y, dy}});
  });
  expect_error(ErrorKind::invalid, {"gelu", "new tape"}, [&] { gelu(*y); });
  y.reset();
  // Live: the parameters and their gradients; x, its gradient and dy.
  const auto rounded = [](size_t bytes) { return round_up(bytes, Arena::granule); };
  size_t expected = 3 * rounded(x.nbytes());
  for (Parameter* p : mlp.parameters()) expected += 2 * rounded(p->data.nbytes());
  EXPECT_EQ(stream.memory().live, expected);
  EXPECT_GT(before, expected);
}

TEST_F(MlpTape, RecomputingAnyValuesKeepsTheBits) {
  const auto plain = gradients();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    TapeOptions options;
    for (int i = 0; i < 16; ++i) {
      options.plan.placement.push_back(random.next() % 2 ? Placement::recompute : Placement::keep);
    }
    ASSERT_EQ(gradients(options), plain) << seed;
  }
}

TEST_F(MlpTape, RecomputingLowersThePeak) {
  const auto peak = [&](Placement placement) {
    CpuStream fresh(size_t{64} << 20, 1);
    const auto on = [&](const Parameter& p) {
      return Parameter{.name = p.name, .data = normal(p.data.shape(), DType::f64, fresh, 1)};
    };
    Mlp copy{on(mlp.norm), on(mlp.norm_bias), on(mlp.fc1), on(mlp.fc2)};
    const Tensor big = normal({2000, 6}, DType::f64, fresh, 1);
    Tape tape(fresh, {.plan = {.placement = std::vector(16, placement)}});
    Var y = copy(tape.input(big));
    tape.backward({Root{y, big}});
    return fresh.memory().peak;
  };
  EXPECT_LT(peak(Placement::recompute), peak(Placement::keep));
}

TEST_F(TapeTest, DoesNotOverwriteASharedGradient) {
  // y = x + gelu(x): dy is also the gradient of x, so gelu must not write its own over it.
  const Tensor x = normal({4, 4}, DType::f64, stream, 1),
               dy = normal({4, 4}, DType::f64, stream, 2);
  const std::vector<double> before = values(dy);
  Tape tape(stream);
  const Var v = tape.input(x, true);
  tape.backward({Root{add(v, gelu(v)), dy}});
  EXPECT_EQ(values(dy), before);
  Tape alone(stream);
  const Var w = alone.input(x, true);
  alone.backward({Root{gelu(w), dy}});
  EXPECT_EQ(values(dy), before);
  const auto sum = values(tape.grad(v)), part = values(alone.grad(w));
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_DOUBLE_EQ(sum[i], part[i] + before[i]);
}

TEST_F(TapeTest, GoesBackwardFromSeveralRoots) {
  const Tensor x = normal({3, 2}, DType::f64, stream, 1),
               dy = normal({3, 2}, DType::f64, stream, 2);
  Tape tape(stream);
  const Var v = tape.input(x, true);
  const Var a = scale(v, 2), b = scale(a, 3);
  tape.backward({Root{a, dy}, Root{b, dy}});
  const auto got = values(tape.grad(v)), d = values(dy);
  for (size_t i = 0; i < d.size(); ++i) EXPECT_DOUBLE_EQ(got[i], 8 * d[i]);
}

TEST_F(TapeTest, RefusesMisuse) {
  Tape tape(stream), other(stream), blank(stream, {.recording = false});
  const Tensor x = normal({3, 2}, DType::f64, stream, 1);
  const Var v = tape.input(x, true), w = other.input(x);
  const auto expect_refused = [](std::string_view words, const std::function<void()>& work) {
    expect_error(ErrorKind::invalid, {words}, work);
  };
  expect_refused("two tapes", [&] { add(v, w); });
  expect_refused("more than one element", [&] { tape.backward(v); });
  expect_refused("does not record", [&] { blank.backward(blank.input(x)); });
  Tape third(stream);
  const Var u = third.input(x);
  expect_refused("TapeOptions::random", [&] { dropout(u, 0.5f); });
  expect_refused("not in [0, 1)", [&] { dropout(u, 1.0f); });
  expect_refused("absent", [&] { third.input(Tensor()); });
  Parameter p = make("p", {5, 3}, 1);
  expect_refused("f64 (5, 3)", [&] { linear(u, p); });
}

TEST_F(TapeTest, AFrozenParameterHasNoGradientAndItsOpSavesNoInput) {
  Parameter weight = make("weight", {2, 2}, 1);
  weight.trainable = false;
  const Tensor x = normal({3, 2}, DType::f64, stream, 1),
               dy = normal({3, 2}, DType::f64, stream, 2);
  Tape tape(stream);
  const Var v = tape.input(x, true);
  Counting hooks;
  const Tape::HooksScope scope(tape, hooks);
  const Var y = linear(scale(v, 2), weight);
  EXPECT_TRUE(hooks.packed.empty());
  tape.backward({Root{y, dy}});
  EXPECT_FALSE(weight.grad);
  EXPECT_TRUE(tape.grad(v));
}

TEST_F(TapeTest, ARefusedOpDoesNotCountAsAContribution) {
  Parameter weight = make("weight", {4, 4}, 1, DType::bf16),
            bias = make("bias", {3}, 2, DType::bf16);
  const Tensor x = normal({3, 4}, DType::bf16, stream, 1);
  const auto type_after = [&](std::string_view words, auto refused) {
    Tape tape(stream), other(stream);
    const Var v = tape.input(x), w = other.input(x);
    Var y = linear(v, weight);
    expect_error(ErrorKind::invalid, {words}, [&] { refused(v, w); });
    y = linear(y, weight);
    tape.backward({Root{y, normal({3, 4}, DType::bf16, stream, 3)}});
    const DType type = weight.grad.dtype();
    weight.grad = {};
    return type;
  };
  const auto by_shape = [&](const Var& v, const Var&) { linear(v, weight, bias); };
  const auto by_tape = [&](const Var& v, const Var& w) { linear(v, weight, w); };
  EXPECT_EQ(type_after("linear", by_shape), DType::f32);
  EXPECT_EQ(type_after("two tapes", by_tape), DType::f32);
}

TEST_F(TapeTest, GradientsOfSeveralContributionsAreF32) {
  Parameter once = make("once", {4, 4}, 1, DType::bf16),
            twice = make("twice", {4, 4}, 2, DType::bf16);
  const Tensor x = normal({3, 4}, DType::bf16, stream, 1);
  const auto types = [&](int micro_batches) {
    Tape tape(stream, {.micro_batches = micro_batches});
    const Var y = linear(linear(linear(tape.input(x), twice), once), twice);
    tape.backward({Root{y, normal({3, 4}, DType::bf16, stream, 3)}});
    const std::pair got(once.grad.dtype(), twice.grad.dtype());
    once.grad = twice.grad = {};
    return got;
  };
  EXPECT_EQ(types(1), std::pair(DType::bf16, DType::f32));
  EXPECT_EQ(types(2), std::pair(DType::f32, DType::f32));
}

}  // namespace
}  // namespace spool::testing
