#include "tests/models/training/flags_testing.h"

#include "spool/planner/machines/machine.h"
#include "tests/models/training/training_testing.h"

namespace spool::testing {
namespace {

template <class T>
const T& one_of(Random& random, const std::vector<T>& all) {
  return all[random.next() % all.size()];
}

std::string power_of_two(Random& random, uint32_t most) {
  return std::to_string(1 << random.next() % (most + 1));
}

Machine cpu_of_eight_threads() {
  return nominal_machine({.architecture = CpuArchitecture{.threads = 8}});
}

}  // namespace

FlaggedRun with_flags(FlaggedRun run, const GivenTexts& flags) {
  for (const auto& [key, texts] : flags) run.flags[key] = texts;
  return run;
}

std::string in_words(const FlaggedRun& run) {
  std::string words = sentence("on ", run.machine.name, ", ", run.host_bytes, " bytes of a host:");
  for (const auto& [key, texts] : run.flags) words += sentence(" --", key, " ", texts.back());
  return words;
}

std::unique_ptr<RunPlanner> planner_of(const FlaggedRun& run) {
  RunOptions o = run_options(run.flags);
  o.host_memory = run.host_bytes;
  o.training.validate();
  RunRequest request = request_of(o, run.machine, {});
  request.device.reset();
  request.program_bytes = 0;
  request.capacity = request.steps.free = MetaStream::unlimited;
  request.steps.budget = 0;
  return std::make_unique<RunPlanner>(o.training, request, sample, run.machine);
}

FlaggedRun random_run(Random& random) {
  const bool has_host = random.next() % 2 == 0;
  // Values must have 1 MiB to leave by a flag.
  const std::string tokens = std::to_string((has_host ? 512 : 64) << random.next() % 3);
  const std::vector<std::string> gpus{"rtx4090", "h100", "h200", "a100-40g"};
  const bool is_cpu = !has_host && random.next() % 3 == 0;
  return {.flags = {{"model", {one_of<std::string>(random, {"gpt2-tiny", "llama-tiny"})}},
                    {"layers", {std::to_string(1 + random.next() % 4)}},
                    {"heads", {"2"}},
                    {"channels", {one_of<std::string>(random, {"32", "64", "256"})}},
                    {"vocab", {one_of<std::string>(random, {"300", "4000", "50000"})}},
                    {"context", {tokens}},
                    {"seq", {tokens}},
                    {"batch", {power_of_two(random, 2)}},
                    {"accumulate", {std::to_string(1 + random.next() % 3)}},
                    {"dtype", {one_of<std::string>(random, {"f32", "bf16"})}}},
          .machine = is_cpu ? cpu_of_eight_threads() : *named_machine(one_of(random, gpus)),
          .host_bytes = has_host ? size_t{1} << (24 + random.next() % 8) : 0};
}

GivenTexts random_policy(Random& random, const FlaggedRun& run) {
  const bool chunks = random.next() % 4 > 0;
  GivenTexts policy{{"recompute", {one_of(random, recompute_lists())}},
                    {"chunk-loss", {chunks ? power_of_two(random, 8) : "0"}},
                    {"chunk-mlp", {chunks ? power_of_two(random, 8) : "0"}},
                    {"offload", {"none"}},
                    {"optimizer-state", {"device"}}};
  if (run.host_bytes > 0) {
    policy["offload"] = {one_of<std::string>(random, {"none", "residual", "all"})};
    policy["optimizer-state"] = {one_of<std::string>(random, {"device", "streamed"})};
  }
  return policy;
}

GivenTexts some_of(Random& random, const GivenTexts& all) {
  GivenTexts some;
  while (some.empty() || some.size() == all.size()) {
    some.clear();
    for (const auto& flag : all) {
      if (random.next() % 2 == 0) some.insert(flag);
    }
  }
  return some;
}

Texts recompute_lists() {
  return {"none",
          "norms",
          "gelu",
          "attention",
          "norms,gelu",
          "gelu,attention",
          "norms,attention",
          "norms,gelu,attention",
          "block"};
}

Texts halves_of(int64_t rows) {
  Texts all{"0"};
  for (int64_t half = rows / 2; half > 0; half /= 2) all.push_back(std::to_string(half));
  return all;
}

Costs costs_of(const PlannedRun& run) {
  const Report& foretold = run.foretold;
  return {foretold.memory.peak, foretold.host.peak, foretold.seconds};
}

void expect_no_help(RunPlanner& search, const FlaggedRun& run, const Costs& costs, double slower) {
  if (costs.host_bytes > run.host_bytes) return;
  const size_t min = search.steps().smallest_budget();
  EXPECT_LE(min, costs.peak);
  if (min > costs.peak) return;
  const PlannedRun planned = search.plan_within(costs.peak);
  const SearchResult& result = *planned.search;
  EXPECT_TRUE(result.fits);
  EXPECT_LE(planned.foretold.memory.peak, costs.peak);
  EXPECT_LE(planned.foretold.host.peak, run.host_bytes);
  EXPECT_LE(planned.foretold.seconds, slower * costs.seconds) << "in " << costs.peak << " bytes";
  // Where copies are set by hand, there is none.
  if (run.flags.contains("offload") || run.flags.contains("optimizer-state")) return;
  EXPECT_GT(result.lower_bound, 0);
  EXPECT_LE(result.lower_bound, costs.seconds * (1 + 1e-9));
  EXPECT_LE(result.lower_bound, result.found.seconds * (1 + 1e-9));
}

}  // namespace spool::testing
