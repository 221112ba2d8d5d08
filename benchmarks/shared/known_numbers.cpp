#include <cstdio>

#include "shared/run_by_flags.h"
#include "shared/runs_by_hand.h"

namespace spool::benchmarks {
namespace {

// A run, and what a good plan of it takes; 0: not known.
struct KnownRun {
  const char* name = "";
  std::string flags = {};
  Place place = {};
  double budget = 0;                    // bytes
  double seconds = 0, gap_percent = 0;  // of the plan within the budget
  size_t smallest = 0;                  // bytes
};

KnownRun of_8b(const char* name, const std::string& tokens, const char* host, KnownRun known) {
  known.name = name;
  known.flags = "--model llama-3.1-8b --context " + tokens + " --seq " + tokens +
                " --batch 1 --accumulate 1 --dtype bf16";
  known.place = {.machine = "h100", .host_memory = host};
  return known;
}

std::vector<KnownRun> known_runs() {
  constexpr double gib = 1 << 30;
  return {
      of_8b("8B T65536", "65536", "500GiB",
            {.budget = 45 * gib, .seconds = 12.73, .gap_percent = 5}),
      of_8b("8B T131072", "131072", "500GiB",
            {.budget = 50 * gib, .seconds = 34.5, .gap_percent = 2.5}),
      of_8b("8B T262144", "262144", "1700GiB",
            {.budget = 74 * gib, .seconds = 113.3, .gap_percent = 2.5, .smallest = 49018826752}),
      of_8b("8B T500000", "500000", "1700GiB",
            {.budget = 74 * gib, .seconds = 381, .gap_percent = 2.5, .smallest = 64792486400}),
      {.name = "llama-tiny T65536",
       .flags = "--model llama-tiny --context 65536 --seq 65536 --batch 1 --accumulate 1 --dtype "
                "bf16",
       .place = {.machine = "rtx4090", .host_memory = "0"},
       .smallest = 297025536},
      {.name = "1B T65536",
       .flags = "--model llama-3.2-1b --seq 65536 --batch 1 --accumulate 1 --dtype bf16",
       .place = {.machine = "h100", .host_memory = "400GiB"},
       .smallest = 7516454912},
      {.name = "llama-tiny, many words",
       .flags =
           "--model llama-tiny --vocab 151936 --context 512 --seq 512 --batch 1 --accumulate 2",
       .place = {.machine = "cpu", .host_memory = "0"},
       .smallest = 497416704}};
}

void print_number(const KnownRun& known) {
  const auto planner = planner_of(texts_of(known.flags), known.place);
  std::printf("%-24s", known.name);
  if (known.budget > 0) {
    const PlannedRun run = planner->plan_within(static_cast<size_t>(known.budget));
    const SearchResult& found = *run.search;
    const double gap = 100 * (found.found.seconds / found.lower_bound - 1);
    std::printf(" %s in %.0f GiB: %.4g s (%.4g), gap %.2f %% (%.2g);",
                found.fits ? "fits" : "DOES NOT FIT", known.budget / (1 << 30), found.found.seconds,
                known.seconds, gap, known.gap_percent);
  }
  std::printf(" smallest %zu", planner->steps().smallest_budget());
  if (known.smallest > 0) std::printf(" (%zu)", known.smallest);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

void print_numbers() {
  for (const KnownRun& known : known_runs()) print_number(known);
}

}  // namespace spool::benchmarks
