// runs: threads
// A failure in the middle of a chunk leaves the tape as it was before the op; in backward, it
// leaves nothing behind.

#include "spool/kernels/elementwise.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

// y = x, by an op that does something at each of its runs.
struct EventfulOp final : Op {
  std::function<void(Stream&)>& in_forward;
  std::function<void(Stream&)>& in_backward;
  EventfulOp(std::function<void(Stream&)>& f, std::function<void(Stream&)>& b)
      : in_forward(f), in_backward(b) {}

  const char* name() const override { return "eventful"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Add{.out = y, .a = x});
    in_forward(f.stream());
  }
  Slots saves(const Needs&) const override { return {out(0)}; }
  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    b.launch(Add{.out = b.grad_input(0), .a = dy});
    in_backward(b.stream());
  }
};

// linear, then a region of five chunks: linear, eventful, linear.
class FailuresInChunks : public ::testing::Test {
 protected:
  std::function<void(Stream&)> in_forward_ = [](Stream&) {}, in_backward_ = [](Stream&) {};
  CpuStream stream{chunk_memory, 2};
  Net net{stream};
  size_t live_before = stream.memory().live;

  TapeOptions how() const { return net.options({.regions = {{1, 3, 5, {5}}}}); }
  Var eventful(const Var& x) { return apply<EventfulOp>(x.tape(), {x}, in_forward_, in_backward_); }
  static std::function<void(Stream&)> failing_at(int run) {
    return [run, runs = 0](Stream&) mutable { check(runs++ != run, "run ", run, " fails"); };
  }

  std::vector<std::vector<double>> finish(Tape& tape, const Var& x, const Var& y) {
    std::vector<std::vector<double>> all{values(y.tensor())};
    tape.backward({{y, normal(y.shape(), DType::f32, stream, 9)}});
    all.push_back(values(std::exchange(net.square.grad, {})));
    all.push_back(values(tape.grad(x)));
    return all;
  }
  std::vector<std::vector<double>> results_without_failure() {
    Tape tape(stream, how());
    const Var x = tape.input(net.x, true), a = linear(x, net.square);
    return finish(tape, x, linear(eventful(linear(a, net.square)), net.square));
  }
};

TEST_F(FailuresInChunks, OfForwardLeaveTheTapeAsBeforeTheOpWhichCanBeAppliedAgain) {
  const auto expected = results_without_failure();
  for (int run = 0; run < 5; ++run) {
    {
      Tape tape(stream, how());
      const Var x = tape.input(net.x, true), a = linear(x, net.square);
      const Var b = eventful(linear(a, net.square));
      const size_t live = stream.memory().live;
      in_forward_ = failing_at(run);
      expect_error(ErrorKind::invalid, {sentence("run ", run, " fails")},
                   [&] { linear(b, net.square); });
      in_forward_ = [](Stream&) {};
      EXPECT_EQ(stream.memory().live, live) << run;
      EXPECT_EQ(tape.nodes().size(), 3u);
      EXPECT_EQ(tape.values().size(), 5u);
      EXPECT_FALSE(b.is_readable());
      EXPECT_EQ(finish(tape, x, linear(b, net.square)), expected) << run;
    }
    EXPECT_EQ(stream.memory().live, live_before);
  }
}

TEST_F(FailuresInChunks, OfRecomputationAndOfBackwardFreeEverything) {
  for (const bool in_recomputation : {true, false}) {
    for (int run = 0; run < 5; ++run) {
      {
        Tape tape(stream, how());
        const Var x = tape.input(net.x, true);
        Var y = linear(eventful(linear(linear(x, net.square), net.square)), net.square);
        const Tensor dy = normal(y.shape(), DType::f32, stream, 9);
        (in_recomputation ? in_forward_ : in_backward_) = failing_at(run);
        expect_error(ErrorKind::invalid, {sentence("run ", run, " fails")}, [&] {
          tape.backward({{y, dy}});
        });
        in_forward_ = in_backward_ = [](Stream&) {};
        EXPECT_FALSE(bool(net.square.grad)) << run;
        y = {};
        EXPECT_EQ(stream.memory().live, live_before + Arena::granule) << "dy, run " << run;
      }
      EXPECT_EQ(stream.memory().live, live_before);
    }
  }
  EXPECT_FALSE(results_without_failure().empty());
}

TEST_F(FailuresInChunks, OfMemoryLeaveTheTapeAsBeforeTheOpWhichCanBeAppliedAgain) {
  const ChunkCase& c = chunk_case("mlp");
  const NetOptions options{.B = 4, .T = 64, .C = 32};
  const Plan plan = plan_of(c, 4, options);
  MetaStream meta({.architecture = stream.architecture()});
  {
    CaseRun run(c, meta, {.plan = plan}, options);
    run.forward();
  }
  CpuStream narrow(meta.memory().peak, 2);
  {
    Net own(narrow, options);
    Tensor ballast({Shape{1}}, narrow);
    Tape tape(narrow, own.options(plan));
    const Var x = tape.input(own.x, true);
    tape.input(own.w);  // as in the case
    const Var d = dropout(
        linear(gelu(linear(layer_norm(x, own.norm_weight, own.norm_bias), own.fc, own.fc_bias)),
               own.proj, own.proj_bias),
        0.25f);
    const size_t live = narrow.memory().live;
    for (int again = 0; again < 2; ++again) {
      expect_error(ErrorKind::memory, {"the arena needs"}, [&] { add(x, d); });
      EXPECT_EQ(narrow.memory().live, live);
      EXPECT_EQ(tape.nodes().size(), 5u);
    }
    ballast = {};
    EXPECT_EQ(values(add(x, d).tensor()), run_case(c, stream, {.plan = plan}, options).outputs[0]);
  }
  EXPECT_EQ(narrow.memory().live, 0u);
}

TEST_F(FailuresInChunks, IncludeOpsThatKeepMemory) {
  std::vector<Tensor> kept;
  const auto keep_some = [&](Stream& s) { kept.emplace_back(Spec{Shape{3}}, s); };
  {
    Tape tape(stream, how());
    const Var x = tape.input(net.x, true), b = eventful(linear(linear(x, net.square), net.square));
    in_forward_ = keep_some;
    expect_error(ErrorKind::invalid, {"repeated work must leave memory as it was"},
                 [&] { linear(b, net.square); });
    EXPECT_EQ(tape.nodes().size(), 3u);
    kept.clear();
    in_forward_ = [](Stream&) {};
    Var y = linear(b, net.square);
    in_backward_ = keep_some;
    expect_error(ErrorKind::invalid, {"repeated work must leave memory as it was"}, [&] {
      tape.backward({{y, normal(y.shape(), DType::f32, stream, 9)}});
    });
    kept.clear();
  }
  EXPECT_EQ(stream.memory().live, live_before);
}

}  // namespace
}  // namespace spool::testing
