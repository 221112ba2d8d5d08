// Trains a custom net in a budget: planned before the first step, saved, and resumed.  A deep
// residual net learns which quarter of a row is largest, in two thirds of the memory that keeping
// everything takes.  It runs ten steps at once, and again as five, a checkpoint, and five more as
// in a new process: the parameters are equal bit for bit, and the peak is the foretold one.  Two
// ranks, threads of the program, then train the same parameters as one, and two that share each
// micro-batch the same losses.

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/spool.h"

namespace research {

using namespace spool;
namespace fs = std::filesystem;

constexpr int64_t N = 512, C = 64, classes = 4, layers = 12;
constexpr int64_t micro_batches = 2, steps = 10;

// Blocks of a norm and two linears around a residual stream.
class Net final : public StepModel {
 public:
  explicit Net(Stream& stream)
      : parameters_(stream),
        head_(parameters_.add("head.weight", {classes, C}, normal(0.05f))),
        x_({Shape{N, C}}, stream, {.name = "x", .purpose = Purpose::input}),
        targets_({Shape{N}, DType::i32}, stream, {.name = "targets", .purpose = Purpose::input}) {
    for (int64_t l = 0; l < layers; ++l) {
      const std::string prefix = "block." + std::to_string(l) + ".";
      blocks_.push_back(
          {.norm = parameters_.add(prefix + "norm.weight", {C}, ones()),
           .norm_bias = parameters_.add(prefix + "norm.bias", {C}),
           .up = parameters_.add(prefix + "up.weight", {4 * C, C}, normal(0.05f)),
           .down = parameters_.add(prefix + "down.weight", {C, 4 * C}, normal(0.05f / layers))});
    }
  }

  Parameters& parameters() override { return parameters_; }

  Var loss(Tape& tape) override {
    Var x = tape.input(x_);
    for (const Block& b : blocks_) {
      const Tape::Scope scope(tape, {.name = "block"});  // what a policy calls a block
      const Var h = gelu(linear(layer_norm(x, b.norm, b.norm_bias), b.up));
      x = add(x, linear(h, b.down));
    }
    return linear_cross_entropy(x, head_, tape.input(targets_));
  }

  void upload_placeholder() override { upload(0); }

  // Uploads the batch of this number, always the same.
  void upload(int64_t number) {
    Random random(7, static_cast<uint64_t>(number));
    std::vector<float> x;
    std::vector<int32_t> targets;
    for (int64_t n = 0; n < N; ++n) {
      targets.push_back(static_cast<int32_t>(random.next() % classes));
      for (int64_t c = 0; c < C; ++c) {
        x.push_back(random.normal() + (c / (C / classes) == targets.back() ? 0.3f : 0.0f));
      }
    }
    write<float>(x_, x);
    write<int32_t>(targets_, targets);
  }

 private:
  struct Block {
    Parameter &norm, &norm_bias, &up, &down;
  };
  Parameters parameters_;
  Parameter& head_;
  std::vector<Block> blocks_;
  Tensor x_, targets_;  // (N, C), i32 (N)
};

const StepDescription net_steps{
    .make_model = make<Net>,
    .config = {.accumulate = micro_batches, .seed = 3, .optimizer = AdamWSettings{.decay = 0.01}}};

// Returns the last loss.
float train(StepRunner& runner, int64_t last) {
  float loss = 0;
  while (runner.steps() < last) {
    const int64_t first = runner.steps() * micro_batches;
    const StepResult result = runner.step(
        /*learning_rate=*/3e-3, /*targets=*/N * micro_batches,
        [&](int64_t micro) { runner.model<Net>().upload(first + micro); });
    loss = result.loss;
    const Communicator* const ranks = runner.stream().ranks();
    if (ranks && ranks->rank() > 0) continue;
    std::printf("step %d: loss %.4f\n", static_cast<int>(runner.steps()),
                static_cast<double>(result.loss));
  }
  return loss;
}

std::vector<std::vector<float>> values(StepRunner& runner) {
  std::vector<std::vector<float>> all;
  for (const Parameter* p : runner.model().parameters()) all.push_back(read<float>(p->data));
  return all;
}

// A step says how many ranks share its micro-batches, and a place which of them is meant; that is
// all there is to it.
std::vector<std::vector<float>> trained_on(int ranks) {
  StepDescription shared = net_steps;
  shared.config.ranks = ranks;
  std::vector<std::vector<float>> all;
  run_ranks(ranks, [&](const std::shared_ptr<Communicator>& own) {
    const StepPlace place{
        .threads = 1, .machine = Machine{.architecture = this_processor(1)}, .ranks = own};
    StepRunner runner(shared, {.policy = Policy{}}, place);
    train(runner, steps);
    if (own->rank() == 0) all = values(runner);
  });
  return all;
}

// Two ranks share each micro-batch, of whose ops each computes a part.
float last_loss_on_a_mesh() {
  StepDescription shared = net_steps;
  shared.config.ranks = 2;
  shared.shards = shards("tensor=2", "megatron");
  float last = 0;
  run_ranks(2, [&](const std::shared_ptr<Communicator>& own) {
    const StepPlace place{
        .threads = 1, .machine = Machine{.architecture = this_processor(1)}, .ranks = own};
    StepRunner runner(shared, {.policy = Policy{}}, place);
    const float loss = train(runner, steps);
    if (own->rank() == 0) last = loss;
  });
  return last;
}

bool report(bool condition, const char* claim) {
  std::printf("%s: %s\n", claim, condition ? "yes" : "NO");
  return condition;
}

}  // namespace research

int main() {
  using namespace research;
  const StepPlace place{.device = {DeviceType::cpu}, .threads = 2};
  const Machine machine{.architecture = this_processor(place.threads)};

  const PlannedSteps all = plan_steps(net_steps, {.policy = Policy{}}, machine);
  const size_t budget = all.foretold.memory.peak / 3 * 2;
  std::printf("keeping everything takes %zu bytes; the budget is %zu\n", all.foretold.memory.peak,
              budget);
  StepRunner runner(net_steps, {.budget = budget}, place);
  const Report& foretold = runner.planned().foretold;
  std::printf("foretold: %s", in_words(foretold, /*max=*/5).c_str());
  const float last = train(runner, steps);
  bool good = report(runner.stream().memory().peak == foretold.memory.peak,
                     "the peak reached is the one foretold");

  const fs::path run = fs::temp_directory_path() / ("spool-own-net-" + std::to_string(budget));
  fs::remove_all(run);
  {
    StepRunner first(net_steps, {.budget = budget}, place);
    train(first, steps / 2);
    first.save(run);
  }
  StepRunner second(net_steps, {.budget = budget}, place, run);
  train(second, steps);
  good &= report(values(second) == values(runner), "the resumed run has the same bits");
  second.save(run);
  fs::remove_all(run);
  good &= report(trained_on(2) == trained_on(1), "two ranks train the parameters of one");
  good &= report(std::abs(last_loss_on_a_mesh() - last) < 1e-4f,
                 "two ranks that share each micro-batch have the loss of one");
  return good ? 0 : 1;
}
