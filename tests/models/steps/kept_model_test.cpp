// Rehearsals that have a model in turn report what those on new models do.

#include "spool/models/steps/sharding/kept_model.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "spool/models/steps/sharding/step_shards.h"
#include "spool/planner/home_units.h"
#include "spool/planner/machines/machine.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr TransformerSizes sizes{.layers = 3, .channels = 128, .dropout = 0.1F};

// One rank, with parameters on the device or not, ranks with micro-batches of their own, those that
// store parameters in parts, and those that share each micro-batch.
std::vector<StepDescription> steps() {
  std::vector<StepDescription> all{describe(sizes, {.accumulate = 3})};
  for (const int zero : {2, 3}) {
    all.push_back(with_neighbours(describe(sizes, {.accumulate = 6, .ranks = 2, .zero = zero})));
  }
  all.push_back(describe(sizes, {.accumulate = 2, .ranks = 4, .zero = 3}));
  all.back().shards = shards("tensor=2", "megatron");
  all.back() = with_neighbours(all.back());
  return all;
}

StepPlans random_plans(const Program& program, bool may_have_homes, std::mt19937& random) {
  const auto one_of = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  StepPlans plans;
  plans.step.placement.assign(program.values.size(), Placement::keep);
  for (const Node& node : program.nodes) {
    if (!node.op->recomputable() || one_of(2) == 0) continue;
    for (const ValueId v : node.outputs) plans.step.placement[v] = Placement::recompute;
  }
  plans.step.buckets_in_flight = 2 + one_of(3);
  if (one_of(3) == 0) plans.step.optimizer_state = OptimizerState::streamed;
  if (may_have_homes && one_of(3) > 0) {
    plans.step.optimizer_state = OptimizerState::streamed;
    const size_t bytes = one_of(2) ? 0 : size_t{2} << 20;  // of two models in turn
    place_homes(plans.step, program, {.bytes_on_device = bytes, .ahead = one_of(3)});
  }
  return plans;
}

void expect_equal(const RehearsedStep& a, const RehearsedStep& b) {
  EXPECT_EQ(a.report.seconds, b.report.seconds);
  EXPECT_EQ(a.report.memory.peak, b.report.memory.peak);
  EXPECT_EQ(a.report.memory.at_peak_by, b.report.memory.at_peak_by);
  EXPECT_EQ(a.report.memory.external_peak, b.report.memory.external_peak);
  EXPECT_EQ(a.report.host.peak, b.report.host.peak);
  ASSERT_EQ(a.survey.works.size(), b.survey.works.size());
  for (size_t i = 0; i < a.survey.works.size(); ++i) {
    EXPECT_EQ(a.survey.works[i].live, b.survey.works[i].live);
    EXPECT_EQ(a.survey.works[i].begin, b.survey.works[i].begin);
    EXPECT_EQ(a.survey.works[i].seconds, b.survey.works[i].seconds);
  }
  ASSERT_EQ(a.lifetimes.all.size(), b.lifetimes.all.size());
  for (size_t i = 0; i < a.lifetimes.all.size(); ++i) {
    const Lifetime &x = a.lifetimes.all[i], &y = b.lifetimes.all[i];
    EXPECT_EQ(std::tuple(x.bytes, x.birth, x.death), std::tuple(y.bytes, y.birth, y.death));
  }
}

TEST(KeptModel, ReportsWhatANewOneDoes) {
  const Machine machine = *named_machine("h200");
  std::mt19937 random(1);
  for (const StepDescription& step : steps()) {
    KeptModels kept;
    const Program program = rehearse_tape(step, {}, machine, &kept).program;
    for (int i = 0; i < (step.config.ranks == 0 ? 24 : 8); ++i) {
      const StepPlans plans = random_plans(program, step.config.ranks == 0, random);
      const RehearsalOptions asked{.survey = true, .lifetimes = i % 2 == 0};
      expect_equal(rehearse_step(step, plans, machine, asked, &kept),
                   rehearse_step(step, plans, machine, asked));
      EXPECT_TRUE(kept);
      EXPECT_EQ(rehearse_tape(step, plans.step, machine, &kept).survey.works.size(),
                rehearse_tape(step, plans.step, machine).survey.works.size());
    }
  }
}

// Makes memory when its loss is first asked for.
class LateModel final : public StepModel {
 public:
  explicit LateModel(Stream& stream) : inner_(sizes, stream), stream_(stream) {}
  Parameters& parameters() override { return inner_.parameters(); }
  Var loss(Tape& tape) override {
    if (!late_) late_ = Tensor({Shape{1000}, DType::f32}, stream_);
    return inner_.loss(tape);
  }
  void upload_placeholder() override { inner_.upload_placeholder(); }

 private:
  Transformer inner_;
  Stream& stream_;
  Tensor late_;
};

TEST(KeptModel, IsNotKeptWithMemoryThatItTookLate) {
  const StepDescription step{.make_model = [](Stream& stream) -> std::unique_ptr<StepModel> {
    return std::make_unique<LateModel>(stream);
  }};
  KeptModels kept;
  const Machine machine = *named_machine("h200");
  const RehearsedStep first = rehearse_step(step, {}, machine, {}, &kept);
  EXPECT_FALSE(kept);
  const RehearsedStep second = rehearse_step(step, {}, machine, {}, &kept);
  EXPECT_EQ(first.report.memory.peak, second.report.memory.peak);
}

TEST(KeptModel, IsNotKeptAfterARehearsalThatThrew) {
  const StepDescription step = describe(sizes, {.accumulate = 1});
  const Machine machine = *named_machine("h200");
  KeptModels kept;
  const size_t peak = rehearse_step(step, {}, machine, {}, &kept).report.memory.peak;
  EXPECT_TRUE(kept);
  StepPlans streams{.host_bytes = 1};
  streams.step.optimizer_state = OptimizerState::streamed;
  EXPECT_THROW(rehearse_step(step, streams, machine, {}, &kept), Error);
  EXPECT_FALSE(kept);
  EXPECT_EQ(rehearse_step(step, {}, machine, {}, &kept).report.memory.peak, peak);
}

}  // namespace
}  // namespace spool::testing
