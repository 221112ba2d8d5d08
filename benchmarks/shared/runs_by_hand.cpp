#include "shared/runs_by_hand.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "shared/machine_of.h"
#include "shared/run_by_flags.h"
#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/files/json.h"

namespace spool::benchmarks {
namespace {

struct SweptRun {
  std::string name = {};
  GivenTexts flags = {};
  Place place = {};
  size_t host_bytes = 0;
  std::vector<GivenTexts> by_hand = {};
};

// A policy by hand, or the plan of a search in which a flag is set, beside the plan of its bytes.
struct Rival {
  std::string flags = {};  // empty: the plan of the smallest budget itself
  size_t peak = 0, host_bytes = 0;
  double seconds = 0;
  double plan_seconds = 0, bound = 0;  // of the plan; 0: none
  double max_ratio = 1.001;            // of the plan's seconds to the rival's
  bool fits_host = true;
  double processor_seconds = 0;  // of the search of this plan and, if one searched, of the rival
};

struct Outcome {
  std::string name = {};
  size_t smallest = 0, keep_all = 0;
  std::vector<Rival> rivals = {};
  double processor_seconds = 0;  // of the search; less the rivals'
};

std::string with_commas(size_t bytes) {
  std::string digits = std::to_string(bytes);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

double percent_above(double a, double b) { return 100 * (a / b - 1); }

bool is_smaller(const Outcome& o, const Rival& r) { return r.fits_host && r.peak < o.smallest; }
// Of a smaller one there is no plan to compare.
bool is_faster(const Outcome& o, const Rival& r) {
  return r.fits_host && !is_smaller(o, r) && r.plan_seconds > r.max_ratio * r.seconds;
}
bool has_plan(const Outcome& o, const Rival& r) { return r.fits_host && !is_smaller(o, r); }
bool lacks_bound(const Outcome& o, const Rival& r) { return has_plan(o, r) && r.bound <= 0; }
bool exceeds(const Outcome& o, const Rival& r) {
  return has_plan(o, r) && r.bound > r.plan_seconds * (1 + 1e-9);
}

SweptRun read_run(const JsonField& field) {
  SweptRun run{.name = field.member("name").string(),
               .flags = texts_of(field.member("flags").string()),
               .place = {.machine = field.member("machine").string(),
                         .host_memory = field.member("host_memory").string()}};
  GivenTexts host;
  host["host-memory"] = {run.place.host_memory};
  run.host_bytes = run_options(host).host_memory.value_or(0);
  for (const JsonField& policy : field.member("by_hand").items()) {
    run.by_hand.push_back(texts_of(policy.string()));
  }
  return run;
}

std::vector<SweptRun> read_runs(const SweepChoice& choice) {
  const JsonField whole = read_json(choice.file);
  std::vector<SweptRun> runs;
  for (const JsonField& field : whole.member("runs").items()) {
    SweptRun run = read_run(field);
    if (choice.only.empty() || choice.only == run.name) runs.push_back(std::move(run));
  }
  check(!runs.empty(), choice.file, " has no run ", choice.only);
  return runs;
}

GivenTexts joined(const GivenTexts& run, const GivenTexts& policy) {
  GivenTexts all = policy;
  all.insert(run.begin(), run.end());
  return all;
}

// What the search finds within the rival's bytes.
void compare(RunPlanner& search, const Outcome& outcome, Rival& rival) {
  if (!has_plan(outcome, rival)) return;
  const double start = thread_processor_seconds();
  const PlannedRun plan = search.plan_within(rival.peak);
  rival.plan_seconds = plan.search->found.seconds;
  rival.bound = plan.search->lower_bound;
  rival.processor_seconds += thread_processor_seconds() - start;
}

// By another than the nominal clock, which chooses a plan's chunks
// (models/steps/chunks/chunk_choice.h), flags that set chunks may be faster.
double max_ratio(const SweptRun& run, const GivenTexts& flags) {
  constexpr double same_chunks = 1.001, other_chunks = 1.03;
  const bool sets_chunks = flags.contains("chunk-loss") || flags.contains("chunk-mlp");
  return sets_chunks && !has_nominal_clock(machine_of(run.place.machine)) ? other_chunks
                                                                          : same_chunks;
}

Rival rival_of(const SweptRun& swept, const PlannedRun& run, const GivenTexts& flags) {
  const size_t host = run.foretold.host.peak;
  return {.flags = flags_of(flags),
          .peak = run.foretold.memory.peak,
          .host_bytes = host,
          .seconds = run.foretold.seconds,
          .max_ratio = max_ratio(swept, flags),
          .fits_host = host <= swept.host_bytes};
}

void compare_policies(const SweptRun& run, RunPlanner& search, Outcome& outcome) {
  for (const GivenTexts& policy : run.by_hand) {
    const auto planner = planner_of(joined(run.flags, policy), run.place);
    Rival rival = rival_of(run, planner->plan(), policy);
    compare(search, outcome, rival);
    outcome.rivals.push_back(std::move(rival));
  }
}

// The smallest budget must have a bound, too.
void compare_smallest(const SweptRun& run, RunPlanner& search, Outcome& outcome) {
  Rival rival = rival_of(run, search.plan_within(outcome.smallest), {});
  compare(search, outcome, rival);
  outcome.rivals.push_back(std::move(rival));
}

// A search with one flag set, at its smallest budget and half-way to what keeps everything.
void compare_with_flag(const SweptRun& run, const GivenTexts& flag, RunPlanner& search,
                       Outcome& outcome) {
  const double start = thread_processor_seconds();
  const auto planner = planner_of(joined(run.flags, flag), run.place);
  const size_t min = planner->steps().smallest_budget();
  double searched = thread_processor_seconds() - start;
  for (const size_t budget : {min, std::midpoint(min, std::max(min, outcome.keep_all))}) {
    const double begin = thread_processor_seconds();
    const PlannedRun planned = planner->plan_within(budget);
    Rival rival = rival_of(run, planned, flag);
    rival.processor_seconds = std::exchange(searched, 0) + thread_processor_seconds() - begin;
    compare(search, outcome, rival);
    outcome.rivals.push_back(std::move(rival));
  }
}

void compare_flags(const SweptRun& run, RunPlanner& search, Outcome& outcome) {
  std::set<GivenTexts> flags;
  for (const GivenTexts& policy : run.by_hand) {
    for (const auto& one : policy) flags.insert({one});
  }
  for (const GivenTexts& flag : flags) compare_with_flag(run, flag, search, outcome);
}

Outcome compare_run(const SweptRun& run, bool one_flag) {
  Outcome outcome{.name = run.name};
  const double start = thread_processor_seconds();
  const auto search = planner_of(run.flags, run.place);
  outcome.smallest = search->steps().smallest_budget();
  outcome.keep_all = search->steps().keep_all_peak();
  outcome.processor_seconds = thread_processor_seconds() - start;
  compare_smallest(run, *search, outcome);
  (one_flag ? compare_flags : compare_policies)(run, *search, outcome);
  for (const Rival& r : outcome.rivals) outcome.processor_seconds += r.processor_seconds;
  return outcome;
}

void print_rival(const Outcome& o, const Rival& r) {
  std::printf("  %s\n    %s bytes, %s of the host, %.6g s",
              r.flags.empty() ? "the smallest budget" : r.flags.c_str(),
              with_commas(r.peak).c_str(), with_commas(r.host_bytes).c_str(), r.seconds);
  if (!r.fits_host) std::printf("; the host has less");
  if (is_smaller(o, r)) {
    std::printf("; SMALLER by %.2f %%",
                -percent_above(static_cast<double>(r.peak), static_cast<double>(o.smallest)));
  }
  if (has_plan(o, r)) {
    std::printf("; the plan takes %.6g s, bound %.6g s", r.plan_seconds, r.bound);
  }
  if (is_faster(o, r)) {
    std::printf("; FASTER: the plan is %.2f %% slower", percent_above(r.plan_seconds, r.seconds));
  }
  if (lacks_bound(o, r)) std::printf("; NO BOUND");
  if (exceeds(o, r)) std::printf("; the BOUND IS ABOVE the plan");
  std::printf("\n");
}

using Fault = bool (*)(const Outcome&, const Rival&);
constexpr Fault faults[] = {is_smaller, is_faster, lacks_bound, exceeds};

int64_t count(const Outcome& o, Fault fault) {
  return std::ranges::count_if(o.rivals, [&](const Rival& r) { return fault(o, r); });
}

bool is_at_fault(const Outcome& o, const Rival& r) {
  return std::ranges::any_of(faults, [&](Fault fault) { return fault(o, r); });
}

void print_outcome(const Outcome& o, bool all) {
  std::printf("%-24s smallest %18s, keeping all %18s;", o.name.c_str(),
              with_commas(o.smallest).c_str(), with_commas(o.keep_all).c_str());
  std::printf(" of %zu: %ld smaller, %ld faster, %ld without bound, %ld below it; %.1f s\n",
              o.rivals.size() - 1, count(o, is_smaller), count(o, is_faster), count(o, lacks_bound),
              count(o, exceeds), o.processor_seconds);
  for (const Rival& r : o.rivals) {
    if (all || is_at_fault(o, r)) print_rival(o, r);
  }
  std::fflush(stdout);
}

// The outcomes in the order of the runs, several of which are compared at a time.
std::vector<Outcome> compare_all(const std::vector<SweptRun>& runs, const SweepChoice& choice) {
  std::vector<Outcome> outcomes(runs.size());
  std::atomic<size_t> next = 0;
  std::mutex printing;
  const auto work = [&] {
    for (size_t i = next++; i < runs.size(); i = next++) {
      outcomes[i] = compare_run(runs[i], choice.one_flag);
      const std::scoped_lock lock(printing);
      print_outcome(outcomes[i], choice.all);
    }
  };
  std::vector<std::jthread> workers;
  const int jobs = choice.jobs > 0 ? choice.jobs : usable_cores();
  for (int i = 0; i < jobs; ++i) workers.emplace_back(work);
  workers.clear();
  return outcomes;
}

}  // namespace

bool sweep_runs(const SweepChoice& choice) {
  const std::vector<Outcome> outcomes = compare_all(read_runs(choice), choice);
  const auto runs_with = [&](Fault fault) {
    return std::ranges::count_if(outcomes, [&](const Outcome& o) { return count(o, fault) > 0; });
  };
  double seconds = 0;
  for (const Outcome& o : outcomes) seconds += o.processor_seconds;
  const long short_runs = runs_with(is_at_fault);
  std::printf(
      "of %zu runs %ld fall short: in %ld something by hand is smaller, in %ld faster, in %ld a "
      "bound is not known, in %ld it is above a plan; searches took %.1f processor seconds, %.1f "
      "of all\n",
      outcomes.size(), short_runs, runs_with(is_smaller), runs_with(is_faster),
      runs_with(lacks_bound), runs_with(exceeds), seconds, process_processor_seconds());
  return short_runs == 0;
}

}  // namespace spool::benchmarks
