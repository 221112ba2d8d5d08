// Mistakes of a caller or of an op's author: each is an error with a sentence, on the calling
// thread.

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// y = 2x, by an op whose author asks for what is not there.
struct Mistaken final : Op {
  enum Mistake { none, outputs, saved, pass_saved };
  Mistake mistake;
  explicit Mistaken(Mistake m) : mistake(m) {}

  const char* name() const override { return "mistaken"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    if (mistake == outputs) y = f.outputs<2>()[1];
    f.launch(Scale{.out = y, .a = x, .factor = 2});
  }
  Slots saves(const Needs&) const override { return {in(0)}; }
  void backward(Backward& b) const override {
    if (mistake == saved) b.launch(Fill{.out = b.saved<2>()[1]});
    if (mistake == pass_saved) return b.pass_saved(0, 1);
    auto [dy] = b.grad_outputs<1>();
    b.launch(Scale{.out = b.grad_input(0), .a = dy, .factor = 2});
  }
};

class Misuse : public ::testing::Test {
 protected:
  CpuStream stream{size_t{16} << 20, 1};
  Tensor x = normal({4, 4}, DType::f64, stream, 1), dy = normal({4, 4}, DType::f64, stream, 2);
  Parameter weight{.name = "weight", .data = normal({4, 4}, DType::f64, stream, 3)};

  void expect_refused(std::initializer_list<std::string_view> words,
                      const std::function<void()>& work, int line = __builtin_LINE()) {
    expect_error(ErrorKind::invalid, words, work, __FILE__, line);
    stream.synchronize();  // no queued work has failed
  }
};

TEST_F(Misuse, BackwardOfALossOnWhichNothingNeedsAGradient) {
  const std::vector<int32_t> ids{0, 1, 2, 3};
  const Tensor targets = make_tensor<int32_t>({4}, ids, stream);
  weight.trainable = false;
  for (const bool follows : {false, true}) {
    Tape tape(stream, {.backward_follows = follows});
    const Var loss = linear_cross_entropy(tape.input(x), weight, tape.input(targets));
    expect_refused({"backward", "linear_cross_entropy", "nothing that needs a gradient"},
                   [&] { tape.backward(loss); });
  }
  Tape tape(stream);
  const Var input = tape.input(x);
  expect_refused({"root f64 (4, 4) (input)", "nothing that needs a gradient"}, [&] {
    tape.backward({Root{input, dy}});
  });
}

TEST_F(Misuse, AnAbsentVar) {
  Tape tape(stream, {.backward_follows = true});
  const Var present = tape.input(x, true), absent;
  EXPECT_TRUE(present);
  EXPECT_FALSE(absent);
  expect_refused({"absent Var"}, [&] { gelu(absent); });
  expect_refused({"absent Var"}, [&] { add(present, absent); });
  expect_refused({"absent Var"}, [&] { linear(present, absent); });
  expect_refused({"absent Var"}, [&] { linear_cross_entropy(present, absent, present); });
  expect_refused({"absent Var"}, [&] { tape.grad(absent); });
  EXPECT_EQ(tape.nodes().size(), 0u);
  expect_refused({"absent Var"}, [&] { tape.backward(absent); });
}

TEST_F(Misuse, AnOpThatAsksForWhatIsNotThere) {
  const auto gradient = [&](Mistaken::Mistake mistake) {
    Tape tape(stream);
    const Var v = tape.input(x, true);
    tape.backward({Root{apply<Mistaken>(tape, {v}, mistake), dy}});
    return values(tape.grad(v));
  };
  const size_t live = stream.memory().live;
  expect_refused({"mistaken", "2 outputs", "gave 1"}, [&] { gradient(Mistaken::outputs); });
  expect_refused({"mistaken", "saved tensor 1", "named 1"}, [&] { gradient(Mistaken::saved); });
  expect_refused({"mistaken", "saved tensor 1", "named 1"},
                 [&] { gradient(Mistaken::pass_saved); });
  EXPECT_EQ(stream.memory().live, live);
  EXPECT_EQ(gradient(Mistaken::none).size(), 16u);
}

// Reads i8 and writes f64, or the other way round.
struct Converter final : Op {
  DType to;
  bool reads, differentiates;
  Converter(DType t, bool r, bool d = false) : to(t), reads(r), differentiates(d) {}
  const char* name() const override { return "converter"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {{in[0].shape, to}}; }
  void forward(Forward& f) const override {
    f.launch(Cast{.out = f.outputs<1>()[0], .in = f.inputs<1>()[0]});
  }
  Slots saves(const Needs&) const override { return {in(0)}; }
  void backward(Backward&) const override {}
  bool differentiable(int) const override { return differentiates; }
  bool reads_stored_types() const override { return reads; }
};

TEST_F(Misuse, ATypeThatIsOnlyStored) {
  const Tensor narrow({x.shape(), DType::i8}, stream), half({x.shape(), DType::f16}, stream);
  Parameter stored{.name = "stored", .data = half};
  Tape tape(stream);
  const Var in = tape.input(narrow), wide = tape.input(x, true);
  expect_refused({"gelu: input 0, i8 (4, 4)", "only stored", "convert it first"},
                 [&] { gelu(in); });
  expect_refused({"parameter stored, f16 (4, 4)", "cannot be trained", "trainable"},
                 [&] { linear(wide, stored); });
  expect_refused({"input: f16 (4, 4)", "cannot have a gradient"}, [&] { tape.input(half, true); });
  expect_refused({"converter: its output, i8 (4, 4)", "differentiable()"}, [&] {
    apply<Converter>(tape, {wide}, DType::i8, /*reads=*/false, /*differentiates=*/true);
  });
  EXPECT_EQ(tape.nodes().size(), 0u);
  stored.trainable = false;
  Tape frozen(stream);
  expect_refused({"linear: input 1, f16 (4, 4)", "convert it first"},
                 [&] { linear(frozen.input(x), stored); });
  const Var back = apply<Converter>(frozen, {frozen.input(narrow)}, DType::f64, /*reads=*/true);
  EXPECT_EQ(back.spec(), x.spec());
  const Var i8 = apply<Converter>(frozen, {frozen.input(x, true)}, DType::i8, /*reads=*/false);
  EXPECT_EQ(i8.spec(), narrow.spec());
}

TEST_F(Misuse, ATensorOfAnotherStream) {
  CpuStream other(size_t{16} << 20, 1);
  const Tensor foreign = normal({4, 4}, DType::f64, other, 1);
  const auto words = {std::string_view("f64 (4, 4)"), std::string_view("another stream")};
  Tape tape(stream);
  const Var v = tape.input(x, true);
  expect_refused(words, [&] { tape.input(foreign); });
  Parameter away{.name = "away", .data = foreign};
  for (int again = 0; again < 2; ++again) {
    expect_refused({"away", "another stream"}, [&] { linear(v, away); });
  }
  EXPECT_EQ(tape.nodes().size(), 0u);
  const Var y = linear(v, weight);
  expect_refused(words, [&] { tape.backward({Root{y, foreign}}); });
  expect_refused({"TapeOptions::random", "another stream"},
                 [&] { const Tape refused(stream, {.random = foreign}); });
  expect_refused({"TapeOptions::loss_scale", "another stream"},
                 [&] { const Tape refused(stream, {.loss_scale = foreign}); });
}

// Applies an op to the tape while it packs a tensor, or throws when it unpacks one.
struct MistakenHooks final : SavedTensorHooks {
  std::function<void()> when_packing = [] {};
  struct Unpacks final : SavedTensor {
    Tensor unpack() override { fail(ErrorKind::invalid, "mistaken: cannot be unpacked"); }
  };
  std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&) override {
    when_packing();
    return std::make_unique<Unpacks>();
  }
};

TEST_F(Misuse, AHookThatUsesTheTape) {
  Tape tape(stream);
  const Var h = linear(tape.input(x), weight);
  MistakenHooks hooks;
  for (const std::function<void()>& use : std::vector<std::function<void()>>{
           [&] { add(h, h); }, [&] { tape.input(x); },
           [&] {
             tape.backward({Root{h, dy}});
           },
           [&] { const Tape::Scope scope(tape, {}); }, [&] { tape.take_program(); }}) {
    hooks.when_packing = use;
    const Tape::HooksScope scope(tape, hooks);
    expect_refused({"while another op", "hook"}, [&] { gelu(h); });
    EXPECT_EQ(tape.nodes().size(), 1u);
  }
  tape.backward({Root{h, dy}});
  EXPECT_TRUE(weight.grad);
}

TEST_F(Misuse, AHookThatFailsInBackwardLeavesNoGradientThatForwardBegan) {
  const std::vector<int32_t> ids{0, 1, 2, 3};
  const Tensor targets = make_tensor<int32_t>({4}, ids, stream);
  const size_t live = stream.memory().live;
  MistakenHooks hooks;
  {
    Tape tape(stream, {.backward_follows = true});
    const Tape::HooksScope scope(tape, hooks);
    const Var h = gelu(gelu(tape.input(x, /*needs_grad=*/true)));
    const Var loss = linear_cross_entropy(h, weight, tape.input(targets));
    EXPECT_TRUE(weight.grad);
    expect_refused({"cannot be unpacked"}, [&] { tape.backward(loss); });
    EXPECT_FALSE(weight.grad);
  }
  EXPECT_EQ(stream.memory().live, live);
}

}  // namespace
}  // namespace spool::testing
