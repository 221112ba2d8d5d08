// runs: threads
// A custom rule with three rows of different types: it streams, resumes and clips.

#include "spool/models/optimizers/update_rule.h"

#include <cmath>

#include "spool/kernels/elementwise.h"
#include "spool/kernels/list.h"
#include "spool/runtime/integer.h"
#include "tests/models/optimizers/optimizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

// The mean of the gradient, in bf16; of its square; and the number of updates of an element:
//   mean = (mean + clip[0] grad) / 2      square = square + mean^2      count = count + 1
//   w = w - lr rate mean / (sqrt(square / count) + 1e-3)
struct Counted {
  static constexpr const char* name = "counted";
  struct Entry {
    View parameter, master, grad, mean, square, count;
    float rate = 1, decay = 0;
    uint32_t index = 0;
    int64_t first = 0;
  };
  List<Entry, 5> tensors = {};
  View schedule = {}, clip = {}, random = {};
  Cost cost() const { return {}; }
};

void run(const Counted& k, CpuStream&) {
  const float lr = *k.schedule.as<float>(), factor = k.clip.as<float>()[0];
  if (k.clip.as<float>()[2] == 0) return;
  for (const Counted::Entry& e : k.tensors) {
    auto *w = e.parameter.as<float>(), *square = e.square.as<float>();
    for (int64_t i = 0; i < e.parameter.numel(); ++i) {
      bf16& mean = e.mean.as<bf16>()[i];
      mean = (mean + factor * e.grad.as<float>()[i]) / 2;
      square[i] += mean * mean;
      const auto count = static_cast<float>(++e.count.as<int32_t>()[i]);
      w[i] -= lr * e.rate * mean / (std::sqrt(square[i] / count) + 1e-3f);
    }
  }
}

namespace {

class CountedRule final : public UpdateRule {
  const char* name() const override { return "counted"; }
  std::vector<StateRow> rows() const override {
    return {{"mean", DType::bf16}, {"square", DType::f32}, {"count", DType::i32}};
  }
  std::vector<float> schedule_at(int64_t, double learning_rate) const override {
    return {static_cast<float>(learning_rate)};
  }
  void update(const UpdateStep& step) const override {
    step.launch(Counted{}, [](Counted::Entry& to, const UpdateEntry& from) {
      to.mean = from.state[0];
      to.square = from.state[1];
      to.count = from.state[2];
    });
  }
};

const std::vector<int64_t> numels{5000, 70001, 2048, 3, 0, 4097, 9};
const StatePlace places[] = {OptimizerState::device,
                             OptimizerState::streamed,
                             {OptimizerState::streamed, 200'000},
                             OptimizerState::cpu};

// The parameters of a run, under the rule.
struct CountedRun : OptimizerRun {
  Optimizer counted;

  explicit CountedRun(const StatePlace& place, double clip = 1)
      : OptimizerRun(numels, {}, place),
        counted(
            std::make_unique<CountedRule>(), pointers, {.clip = clip}, stream,
            {.state = place.state, .link = link.get(), .bytes_on_device = place.bytes_on_device}) {}
  void steps(int64_t first, int64_t last) {
    for (int64_t t = first; t <= last; ++t) {
      make_gradients(t);
      counted.step(/*learning_rate=*/0.01);
    }
  }
  Bytes bytes() { return state_bytes(pointers, counted); }
};

TEST(UpdateRule, OfThreeRowsHasTheSameBitsWhereverTheyAre) {
  Bytes wanted;
  for (const StatePlace& place : places) {
    SCOPED_TRACE(sentence(name(place.state), ", ", place.bytes_on_device));
    CountedRun run(place);
    run.steps(1, 5);
    if (wanted.empty()) wanted = run.bytes();
    EXPECT_TRUE(run.bytes() == wanted);
    std::vector<int32_t> count(3);
    run.counted.read_state({.row = 2, .parameter = 3, .elements = {0, 3}},
                           std::as_writable_bytes(std::span(count)));
    EXPECT_EQ(count, std::vector<int32_t>(3, 4));  // of five steps, one without a gradient
  }
}

TEST(UpdateRule, ResumesElsewhere) {
  CountedRun whole(OptimizerState::device);
  whole.steps(1, 2);
  const Bytes middle = whole.bytes();
  whole.steps(3, 4);
  for (const StatePlace& place : places) {
    CountedRun resumed(place);
    load_bytes(resumed.counted, middle);
    resumed.counted.set_steps(2);
    resumed.steps(3, 4);
    EXPECT_EQ(resumed.counted.steps(), 4);
    EXPECT_TRUE(resumed.bytes() == whole.bytes()) << name(place.state);
  }
}

TEST(UpdateRule, GetsClippedGradientsAndNoneThatAreNotFinite) {
  for (const StatePlace& place : places) {
    CountedRun clipped(place), free(place, /*clip=*/0);
    for (CountedRun* run : {&clipped, &free}) run->steps(1, 1);
    const float factor = read<float>(clipped.counted.clip())[0];
    EXPECT_LT(factor, 0.1f);
    EXPECT_EQ(read<float>(free.counted.clip())[0], 1);
    const auto square = [](CountedRun& run) { return read_row(run.counted, /*row=*/1, 1); };
    const std::vector<float> some = square(clipped), all = square(free);
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_NEAR(some[i], factor * factor * all[i], 0.03f * factor * factor * all[i]);
    }
    const Bytes before = clipped.bytes();
    clipped.make_gradients(2);
    launch(Fill{.out = clipped.parameters[0].grad, .value = NAN}, clipped.stream);
    clipped.counted.step(0.01);
    EXPECT_TRUE(clipped.bytes() == before);
  }
}

TEST(UpdateRule, ThatKeepsMoreThanThereIsRoomForIsRefused) {
  class Greedy final : public UpdateRule {
    const char* name() const override { return "greedy"; }
    std::vector<StateRow> rows() const override { return std::vector<StateRow>(5); }
    std::vector<float> schedule_at(int64_t, double) const override { return {}; }
    void update(const UpdateStep&) const override {}
  };
  OptimizerRun run({3}, {}, OptimizerState::device);
  expect_error(ErrorKind::invalid, {"greedy", "5 rows", "at most 4"},
               [&] { Optimizer(std::make_unique<Greedy>(), run.pointers, {}, run.stream); });
}

}  // namespace
}  // namespace spool::testing
