// runs: threads
// A gradient that no rank has is not exchanged; one that only some have is an error that names it.

#include <mutex>

#include "spool/autograd/ops.h"
#include "spool/models/steps/step_executor.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int64_t rows = 4, channels = 32, classes = 8;

// A layer and a loss; a second layer beside the first only where it is asked for.
class Net final : public StepModel {
 public:
  Net(Stream& stream, bool is_whole)
      : parameters_(stream),
        spare_(parameters_.add("spare", {channels, channels})),
        layer_(parameters_.add("layer", {channels, channels})),
        head_(parameters_.add("head", {classes, channels})),
        x_({Shape{rows, channels}}, stream, {.name = "x", .purpose = Purpose::input}),
        targets_({Shape{rows}, DType::i32}, stream, {.name = "targets", .purpose = Purpose::input}),
        is_whole_(is_whole) {}

  Parameters& parameters() override { return parameters_; }
  Var loss(Tape& tape) override {
    const Var x = tape.input(x_);
    Var y = linear(x, layer_);
    if (is_whole_) y = add(y, linear(x, spare_));
    return linear_cross_entropy(gelu(y), head_, tape.input(targets_));
  }
  void upload_placeholder() override {
    write<float>(x_, std::vector<float>(static_cast<size_t>(rows * channels), 0.5F));
    write<int32_t>(targets_, std::vector<int32_t>(static_cast<size_t>(rows), 1));
  }
  void initialise(uint64_t) override {
    for (const Parameter* p : parameters_) {
      write<float>(p->data, std::vector<float>(static_cast<size_t>(p->data.numel()), 0.01F));
    }
  }
  std::vector<float> spare() const { return read<float>(spare_.data); }

 private:
  Parameters parameters_;
  Parameter &spare_, &layer_, &head_;
  Tensor x_, targets_;
  bool is_whole_;
};

// Whether the ranks' nets are whole.
using Wholes = std::vector<bool>;

struct Outcome {
  size_t sent = 0;
  bool has_changed_spare = false;
};

Outcome step(const Wholes& wholes, int stage) {
  Outcome all;
  std::mutex mutex;
  const auto ranks = static_cast<int>(wholes.size());
  run_ranks(ranks, [&](const std::shared_ptr<Communicator>& own) {
    CpuStream stream(size_t{4} << 20, 1);
    stream.join(own);
    Net net(stream, wholes[static_cast<size_t>(own->rank())]);
    const StepConfig config{.accumulate = ranks, .ranks = ranks, .zero = stage};
    StepExecutor executor(net, config, {}, stream);
    net.initialise(0);
    executor.optimizer().initialise();
    const std::vector<float> before = net.spare();
    executor.run({.learning_rate = 0.1}, [&](int64_t) { net.upload_placeholder(); });
    EXPECT_TRUE(executor.result().finite);
    const std::lock_guard lock(mutex);
    all.sent += own->sent();
    all.has_changed_spare = all.has_changed_spare || net.spare() != before;
  });
  return all;
}

TEST(AbsentGradients, OfAllRanksAreNotExchanged) {
  for (const int stage : {0, 1, 2}) {
    const Outcome without = step({false, false, false}, stage),
                  with = step({true, true, true}, stage);
    EXPECT_FALSE(without.has_changed_spare);
    EXPECT_TRUE(with.has_changed_spare);
    EXPECT_LT(without.sent, with.sent);
  }
}

TEST(AbsentGradients, OfSomeRanksAreNamed) {
  for (const int stage : {0, 1, 2}) {
    for (const Wholes& wholes : {Wholes{true, false}, {false, true, true}, {true, true, false}}) {
      expect_error(ErrorKind::invalid, {"rank", "'gradients without spare'"},
                   [&] { step(wholes, stage); });
    }
  }
}

}  // namespace
}  // namespace spool::testing
