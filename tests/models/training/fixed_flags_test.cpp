// runs: numbers
// Nothing set by hand beats the plan: no flags that a search may choose take fewer bytes than the
// smallest budget, or are faster in the bytes of a plan.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "tests/models/training/flags_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr double no_slower = 1.001;

// By another than the nominal clock, which chooses chunks, flags that set them may be faster.
double slower_than(const FlaggedRun& run) {
  const bool sets_chunks = run.flags.contains("chunk-loss") || run.flags.contains("chunk-mlp");
  return sets_chunks && !has_nominal_clock(run.machine) ? 1.03 : no_slower;
}

int cases() { return nightly() ? 200 : 4; }

TEST(FixedFlags, NoPolicyHelps) {
  for (int i = 0; i < cases(); ++i) {
    Random random(/*seed=*/1, static_cast<uint64_t>(i));
    const FlaggedRun run = random_run(random);
    const auto search = planner_of(run);
    for (int j = 0; j < 6; ++j) {
      const FlaggedRun by_hand = with_flags(run, random_policy(random, run));
      SCOPED_TRACE(sentence("case ", i, " ", in_words(by_hand)));
      expect_no_help(*search, run, costs_of(planner_of(by_hand)->plan()), slower_than(by_hand));
    }
  }
}

// What a search in which some flags are set finds for its smallest budget, and half-way to the peak
// that keeps all.
std::vector<Costs> costs_of_search(RunPlanner& planner) {
  const size_t min = planner.steps().smallest_budget();
  const size_t max = std::max(min, planner.steps().keep_all_peak());
  return {costs_of(planner.plan_within(min)),
          costs_of(planner.plan_within(std::midpoint(min, max)))};
}

TEST(FixedFlags, NoFlagHelpsASearch) {
  for (int i = 0; i < cases(); ++i) {
    Random random(/*seed=*/2, static_cast<uint64_t>(i));
    const FlaggedRun run = random_run(random);
    const GivenTexts policy = random_policy(random, run);
    const FlaggedRun fewer = with_flags(run, some_of(random, policy));
    SCOPED_TRACE(sentence("case ", i, " ", in_words(fewer)));
    const auto search = planner_of(run), other = planner_of(fewer);
    for (const Costs& costs : costs_of_search(*other)) {
      expect_no_help(*search, run, costs, slower_than(fewer));
    }
    const FlaggedRun all = with_flags(run, policy);
    SCOPED_TRACE(in_words(all));
    expect_no_help(*other, fewer, costs_of(planner_of(all)->plan()), slower_than(all));
  }
}

FlaggedRun small_net(const std::string& model, const std::string& tokens) {
  return {.flags = {{"model", {model}},
                    {"layers", {"2"}},
                    {"heads", {"2"}},
                    {"channels", {"64"}},
                    {"vocab", {"1000"}},
                    {"context", {tokens}},
                    {"seq", {tokens}},
                    {"batch", {"1"}},
                    {"accumulate", {"1"}},
                    {"dtype", {"f32"}}},
          .machine = *named_machine("rtx4090")};
}

// All policies with these values of each flag.
std::vector<GivenTexts> policies(const std::vector<std::pair<const char*, Texts>>& values) {
  std::vector<GivenTexts> all{{}};
  for (const auto& [key, texts] : values) {
    std::vector<GivenTexts> longer;
    for (const GivenTexts& policy : all) {
      for (const std::string& text : texts) {
        longer.push_back(policy);
        longer.back()[key] = {text};
      }
    }
    all = std::move(longer);
  }
  return all;
}

void expect_no_policy_helps(const FlaggedRun& run, const std::vector<GivenTexts>& policies) {
  const auto search = planner_of(run);
  for (const GivenTexts& policy : policies) {
    const FlaggedRun by_hand = with_flags(run, policy);
    SCOPED_TRACE(in_words(by_hand));
    expect_no_help(*search, run, costs_of(planner_of(by_hand)->plan()), no_slower);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(FixedFlags, NoUniformPolicyHelps) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    expect_no_policy_helps(small_net(model, "32"), policies({{"recompute", recompute_lists()},
                                                             {"chunk-loss", halves_of(32)},
                                                             {"chunk-mlp", halves_of(32)}}));
  }
}

TEST(FixedFlags, NoUniformPolicyHelpsWithALink) {
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    FlaggedRun run = small_net(model, "4096");  // values of 1 MiB
    run.host_bytes = size_t{1} << 30;
    expect_no_policy_helps(
        run, policies({{"recompute", {"none", "norms,gelu", "norms,gelu,attention", "block"}},
                       {"chunk-loss", {"0", "512", "8"}},
                       {"chunk-mlp", {"0", "512", "8"}},
                       {"offload", {"none", "residual", "all"}},
                       {"optimizer-state", {"device", "streamed"}}}));
  }
}

struct WideVocabulary {
  std::string model, layers, heads, channels, vocabulary, tokens, accumulate, dtype;
  GivenTexts policy;
};

// Rows of the loss between two powers of two, more than 1024 chunks of it, and a workspace that
// grows no longer: what is best depends on each.
TEST(FixedFlags, NoPolicyHelpsIfTheVocabularyTakesMost) {
  const WideVocabulary cases[] = {
      {"llama-tiny",
       "12",
       "2",
       "16",
       "151936",
       "2048",
       "1",
       "f32",
       {{"recompute", {"block"}}, {"chunk-loss", {"7"}}, {"chunk-mlp", {"0"}}}},
      {"gpt2-tiny",
       "3",
       "4",
       "32",
       "50257",
       "16384",
       "2",
       "bf16",
       {{"recompute", {"block"}}, {"chunk-loss", {"8"}}, {"chunk-mlp", {"128"}}}},
      {"gpt2-tiny",
       "3",
       "4",
       "128",
       "50257",
       "2048",
       "5",
       "bf16",
       {{"recompute", {"norms,gelu,attention"}}, {"chunk-loss", {"128"}}, {"chunk-mlp", {"128"}}}}};
  for (const WideVocabulary& c : cases) {
    const FlaggedRun run{.flags = {{"model", {c.model}},
                                   {"layers", {c.layers}},
                                   {"heads", {c.heads}},
                                   {"channels", {c.channels}},
                                   {"vocab", {c.vocabulary}},
                                   {"context", {c.tokens}},
                                   {"seq", {c.tokens}},
                                   {"batch", {"1"}},
                                   {"accumulate", {c.accumulate}},
                                   {"dtype", {c.dtype}}},
                         .machine = *named_machine("a100-80g")};
    expect_no_policy_helps(run, {c.policy});
  }
}

// A search that never ends early, though the bound proves its plan to be fast.
constexpr double never = -1;

std::unique_ptr<Search> search_of(const FlaggedRun& run, double proven_gap) {
  const TrainingConfig config = run_options(run.flags).training;
  const Machine& machine = run.machine;
  const bool has_host = run.host_bytes > 0;
  Levers levers{.regions = true,
                .state_share = has_host,
                .host_bytes = run.host_bytes,
                .proven_gap = proven_gap};
  if (has_host) levers.offload_to = OffloadTarget::host;
  return std::make_unique<Search>(searched_step(describe_step(config), machine), levers);
}

TEST(FixedFlags, ASearchThatEndsEarlyFindsPlansAsGood) {
  const int cases = nightly() ? 200 : 6;  // Of the first 4, none is searched for longer.
  int searched_for_longer = 0;
  for (int i = 0; i < cases; ++i) {
    Random random(/*seed=*/4, static_cast<uint64_t>(i));
    const FlaggedRun run = random_run(random);
    SCOPED_TRACE(sentence("case ", i, " ", in_words(run)));
    const auto search = search_of(run, Levers{}.proven_gap), whole = search_of(run, never);
    const size_t nearly_all = whole->keep_all_peak() / 20 * 19;
    searched_for_longer += whole->plan(nearly_all).rehearsals > search->plan(nearly_all).rehearsals;
    const size_t min = whole->smallest_budget(), max = std::max(min, whole->keep_all_peak());
    EXPECT_EQ(search->smallest_budget(), min);
    for (const size_t budget : {min, std::midpoint(min, max), max}) {
      const SearchResult found = search->plan(budget), best = whole->plan(budget);
      EXPECT_TRUE(found.fits && best.fits) << budget;
      EXPECT_LE(found.found.seconds, no_slower * best.found.seconds) << budget;
    }
  }
  EXPECT_GT(searched_for_longer, 0);
}

// Six budgets by equal ratios, from the smallest to the peak that keeps all.
std::vector<size_t> budgets_of(RunPlanner& planner) {
  const auto min = static_cast<double>(planner.steps().smallest_budget());
  const double ratio = static_cast<double>(planner.steps().keep_all_peak()) / min;
  std::vector<size_t> budgets;
  for (int i = 0; i <= 5; ++i) {
    budgets.push_back(static_cast<size_t>(std::ceil(min * std::pow(ratio, i / 5.0))));
  }
  return budgets;
}

// Also below the times of plans of smaller budgets.
TEST(FixedFlags, EachBudgetHasABoundAndALargerOneIsNotSlower) {
  for (int i = 0; i < cases(); ++i) {
    Random random(/*seed=*/3, static_cast<uint64_t>(i));
    const FlaggedRun run = random_run(random);
    SCOPED_TRACE(sentence("case ", i, " ", in_words(run)));
    const auto planner = planner_of(run);
    double before = INFINITY;
    for (const size_t budget : budgets_of(*planner)) {
      const PlannedRun planned = planner->plan_within(budget);
      ASSERT_TRUE(planned.search->fits) << budget;
      const double seconds = planned.search->found.seconds;
      EXPECT_GT(planned.search->lower_bound, 0) << budget;
      EXPECT_LE(planned.search->lower_bound, std::min(before, seconds) * (1 + 1e-9)) << budget;
      EXPECT_LE(seconds, before * (run.host_bytes > 0 ? no_slower : 1)) << budget;
      before = std::min(before, seconds);
    }
    EXPECT_FALSE(planner->plan_within(planner->steps().smallest_budget() - 1).search->fits);
  }
}

}  // namespace
}  // namespace spool::testing
