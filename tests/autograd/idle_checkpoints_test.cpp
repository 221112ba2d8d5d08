// A checkpoint that frees nothing is not silent: backward says so in the log, once.

#include <spdlog/sinks/ostream_sink.h>

#include <sstream>

#include "spool/autograd/ops.h"
#include "spool/autograd/tape.h"
#include "spool/runtime/log.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class IdleCheckpoints : public ::testing::Test {
 protected:
  IdleCheckpoints() {
    for (int i = 0; i < 4; ++i) {
      weights_.push_back({.name = "weight" + std::to_string(i), .data = tensor({4, 4})});
    }
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
    sink->set_pattern("%l: %v");
    set_logger(std::make_shared<spdlog::logger>("test", sink));
  }
  ~IdleCheckpoints() override { set_logger(std::make_shared<spdlog::logger>("none")); }

  Tensor tensor(const Shape& shape) { return Tensor({shape}, stream_); }
  Var step(size_t i, const Var& x) { return linear(x, weights_[i]); }

  // What backward logs of a tape with this model.
  template <class Model>
  std::string logged(const Model& model, bool recording = true) {
    log_.str("");
    Tape tape(stream_, {.recording = recording});
    const Var y = model(tape, tape.input(tensor({2, 4})));
    idle_ = idle_checkpoints(tape.program()).size();
    if (recording) tape.backward({Root{y, tensor(y.shape())}});
    return log_.str();
  }

  MetaStream stream_{Machine{}};
  std::vector<Parameter> weights_;
  std::ostringstream log_;
  size_t idle_ = 0;
};

TEST_F(IdleCheckpoints, AreLoggedOnceWithTheReason) {
  const auto model = [&](Tape& tape, Var h) {
    h = step(0, h);
    h = checkpoint(tape, [&] { return step(1, h); });
    return step(2, h);
  };
  EXPECT_EQ(
      logged(model),
      "warning: the checkpoint of linear (node 1) frees nothing: the output of linear (node "
      "1) is saved by linear (node 2), outside of it; let a checkpoint hold the ops that read "
      "each other's outputs, or leave it out\n");
  EXPECT_EQ(idle_, 1u);
  EXPECT_EQ(logged(model), "");
  EXPECT_EQ(idle_, 1u);
}

TEST_F(IdleCheckpoints, AreCountedIfThereAreSeveral) {
  const auto model = [&](Tape& tape, Var h) {
    for (size_t i = 0; i < 4; ++i) h = checkpoint(tape, [&] { return step(i, h); });
    return h;
  };
  const std::string log = logged(model);
  EXPECT_TRUE(contains(log, "; so do 3 more checkpoints")) << log;
  EXPECT_EQ(idle_, 4u);
}

TEST_F(IdleCheckpoints, ThatNothingReadsSayThat) {
  const auto model = [&](Tape& tape, Var h) {
    h = step(0, h);
    return checkpoint(tape, [&] { return step(1, h); });
  };
  EXPECT_TRUE(contains(logged(model), "backward reads nothing that it computes"));
}

TEST_F(IdleCheckpoints, AreNotThoseThatFreeSomething) {
  const auto two = [&](Tape& tape, Var h) {
    h = checkpoint(tape, [&] { return step(1, step(0, h)); });
    return step(2, h);
  };
  EXPECT_EQ(logged(two), "");
  const auto saves_its_input = [&](Tape& tape, Var h) {
    return step(2, checkpoint(tape, [&] { return gelu(step(0, h)); }));
  };
  EXPECT_EQ(logged(saves_its_input), "");
  const auto nested = [&](Tape& tape, Var h) {
    return checkpoint(tape, [&] { return checkpoint(tape, [&] { return step(1, step(0, h)); }); });
  };
  EXPECT_EQ(logged(nested), "");
  EXPECT_EQ(idle_, 0u);
}

TEST_F(IdleCheckpoints, AreNotThoseWithoutGradientsOrOps) {
  const auto empty = [&](Tape& tape, Var h) {
    checkpoint(tape, [] {});
    return step(0, h);
  };
  EXPECT_EQ(logged(empty), "");
  const auto evaluated = [&](Tape& tape, Var h) {
    return step(1, checkpoint(tape, [&] { return step(0, h); }));
  };
  EXPECT_EQ(logged(evaluated, /*recording=*/false), "");
  weights_[0].trainable = false;
  EXPECT_EQ(logged(evaluated), "");
  EXPECT_EQ(idle_, 0u);
}

}  // namespace
}  // namespace spool::testing
