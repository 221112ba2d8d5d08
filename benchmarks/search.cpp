// Measures searches for the plan of a step: `search/MODEL/LINK/PERCENT` creates a Search for GPT-2
// (T=1024, bf16, on an H200) and asks it for the plan of one budget, in percent of the smallest
// possible one.  `gap_percent` is how far the plan can be from the best, `slower_percent` what it
// takes beyond keeping everything, `rehearsals` how many steps were rehearsed.  `search/2000 ops`
// is a chain of products of many widths without scopes; `frontier` asks for 20 budgets and the
// smallest; `smallest` for the smallest alone, with and without regions in chunks.
//
// `budget/...` are budgets for which a good plan is known: `slower_percent` should not be above
// `good_percent`, or `slower_ms` above `good_ms`.  sac_milp is the example of PyTorch's
// selective-checkpoint solver (torch/distributed/_tools), on its roofline of an A100, for the bytes
// by which its answer is below keeping everything.
//
//   search --sweep [--runs=search_runs.json] [--only=NAME] [--one-flag] [--all] [--jobs=N]
//
// compares searches with policies by hand instead: a line for each run of the file, one for each
// policy (--all), or only those that take fewer bytes than the smallest budget that the search
// names, or are faster than the plan of their bytes (by more than 0.1 %; by more than 3 % if they
// set chunks and the machine's clock is not the nominal one), or whose bytes have no bound.
// --one-flag compares with searches in which one flag of the policies is set.  The exit status is 1
// if there is such a policy.
//
//   search --numbers
//
// prints time, gap and smallest budget of long rows, and in brackets those of a good plan.
//
//   search --losses
//
// compares chunks, on which losses depend, over tables of measured kernels and numbers of threads,
// and prints how much slower plans are than with chunks that are chosen freely.

#include <benchmark/benchmark.h>

#include <string>

#include "shared/chunk_prices.h"
#include "shared/device.h"
#include "shared/runs_by_hand.h"
#include "spool/autograd/ops.h"
#include "spool/models/families/gpt2.h"
#include "spool/models/steps/step_planner.h"
#include "spool/models/training/trainer.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/random.h"

namespace spool {
namespace {

// A chain of linear maps and activations, of random widths.
class WideChain final : public StepModel {
 public:
  WideChain(int64_t ops, Stream& stream) : parameters_(stream), x_({Shape{rows, 256}}, stream) {
    Random random(1);
    int64_t width = 256;
    for (int64_t i = 0; i < ops; i += 2) {
      const int64_t next = i + 2 < ops ? 64 * (1 + random.next() % 16) : 1;
      parameters_.add("weight." + std::to_string(i / 2), {next, width});
      width = next;
    }
    targets_ = Tensor({Shape{rows}, DType::i32}, stream);
  }
  Parameters& parameters() override { return parameters_; }
  Var loss(Tape& tape) override {
    Var x = tape.input(x_);
    const size_t last = parameters_.size() - 1;
    for (size_t i = 0; i < last; ++i) x = gelu(linear(x, *parameters_[i]));
    return linear_cross_entropy(x, *parameters_[last], tape.input(targets_));
  }

 private:
  static constexpr int64_t rows = 4096;
  Parameters parameters_;
  Tensor x_, targets_;
};

StepDescription describe_chain(int64_t ops) {
  return {.make_model = [ops](Stream& stream) { return std::make_unique<WideChain>(ops, stream); }};
}

StepDescription describe_gpt2(const std::string& model) {
  const bool tiny = model == "gpt2-tiny";
  return describe_step({.model = *gpt2_preset(model),
                        .dtype = DType::bf16,
                        .batch = model == "gpt2-124m" ? 32 : 8,
                        .seq = tiny ? 128 : 1024});
}

Levers levers_of(bool link) {
  Levers levers{.state_share = link};
  if (link) levers.offload_to = OffloadTarget::host;
  return levers;
}

void search_budget(benchmark::State& state, const StepDescription& step, const Levers& levers,
                   double percent) {
  const SearchedStep searched = searched_step(step, *named_machine("h200"));
  const size_t min = Search(searched, {}).smallest_budget();
  const auto budget = static_cast<size_t>(percent / 100 * static_cast<double>(min));
  SearchResult result;
  for (auto _ : state) result = Search(searched, levers).plan(budget);
  const auto more_percent = [](double a, double b) { return 100 * (a / b - 1); };
  state.counters["gap_percent"] = more_percent(result.found.seconds, result.lower_bound);
  state.counters["slower_percent"] = more_percent(result.found.seconds, result.keep_all_seconds);
  state.counters["rehearsals"] = result.rehearsals;
}

void search_frontier(benchmark::State& state, const StepDescription& step, const Levers& levers) {
  const SearchedStep searched = searched_step(step, *named_machine("h200"));
  constexpr int points = 20;
  for (auto _ : state) {
    Search search(searched, levers);
    const size_t min = search.smallest_budget(), max = search.keep_all_peak();
    for (size_t i = 0; i < points; ++i) search.plan(min + (max - min) * i / (points - 1));
  }
}

// By how much regions in chunks lower the smallest budget.
void search_smallest(benchmark::State& state, const StepDescription& step, Levers levers) {
  const SearchedStep searched = searched_step(step, *named_machine("h200"));
  const auto smallest = [&](bool regions) {
    levers.regions = regions;
    return static_cast<double>(Search(searched, levers).smallest_budget());
  };
  double with = 0;
  for (auto _ : state) with = smallest(/*regions=*/true);
  const double without = smallest(/*regions=*/false);
  state.counters["smallest_mb"] = without / 1e6;
  state.counters["with_regions_mb"] = with / 1e6;
  state.counters["lower_percent"] = 100 * (1 - with / without);
}

// A budget, and the extra time of a good plan for it, beyond keeping everything without chunks.
struct KnownBudget {
  const char* name = "";
  TrainingConfig config = {};
  Machine machine = {};
  Levers levers = {};
  double bytes = 0;  // negative: this much less than keeping everything takes
  double good_percent = 0, good_ms = 0;
};

void search_known(benchmark::State& state, const KnownBudget& known) {
  const SearchedStep searched = searched_step(describe_step(known.config), known.machine);
  const SearchResult kept = Search(searched, {.loss_rows = 0}).plan(MetaStream::unlimited);
  const double base = known.bytes < 0 ? static_cast<double>(kept.keep_all_peak) : 0;
  SearchResult result;
  for (auto _ : state) {
    result = Search(searched, known.levers).plan(static_cast<size_t>(base + known.bytes));
  }
  const double slower = result.found.seconds - kept.keep_all_seconds;
  if (known.good_ms > 0) {
    state.counters["slower_ms"] = 1e3 * slower;
    state.counters["good_ms"] = known.good_ms;
  } else {
    state.counters["slower_percent"] = 100 * slower / kept.keep_all_seconds;
    state.counters["good_percent"] = known.good_percent;
  }
  state.counters["gap_percent"] = 100 * (result.found.seconds / result.lower_bound - 1);
}

TrainingConfig on_h200(const char* model, int64_t batch) {
  return {.model = *gpt2_preset(model), .dtype = DType::bf16, .batch = batch};
}

Machine roofline(double flops, double bytes, const Architecture& architecture) {
  return {.architecture = architecture,
          .f32_flops = flops,
          .bf16_flops = flops,
          .bytes_per_second = bytes};
}

std::vector<KnownBudget> sac_milp() {
  TrainingConfig config{.model = *gpt2_preset("gpt2-124m"), .batch = 8, .dropout = 0.1f};
  config.model = config.model.with("layers", 4).with("vocab", 8192);
  Machine a100 = roofline(29.24e12, 1935e9, CudaArchitecture{.major = 8, .minor = 0});
  a100.launch_seconds = 0;
  a100.to_host_bytes_per_second = a100.from_host_bytes_per_second = 25e9;
  const KnownBudget budget{.config = config, .machine = a100, .bytes = -672.19 * 1048576};
  KnownBudget alone = budget, chunks = budget, host = budget;
  alone.name = "sac_milp/recompute";
  alone.levers.loss_rows = 0;
  alone.good_ms = 2.0;
  chunks.name = "sac_milp/chunked loss";
  chunks.good_ms = 0.92;
  host.name = "sac_milp/chunked loss and host";
  host.levers.offload_to = OffloadTarget::host;
  host.good_ms = 0.5;
  return {alone, chunks, host};
}

std::vector<KnownBudget> known_budgets() {
  const Machine h200 = *named_machine("h200");
  const TrainingConfig xl = on_h200("gpt2-1558m", 8), small = on_h200("gpt2-124m", 32);
  const TrainingConfig on_cpu{.model = *gpt2_preset("gpt2-124m"), .batch = 4};
  const Machine cpu = roofline(450e9, 20e9, CpuArchitecture{.threads = 2});
  const Levers both = levers_of(/*link=*/true);
  std::vector<KnownBudget> all = sac_milp();
  const std::vector<KnownBudget> others{
      {"gpt2-1558m/32.35 GB", xl, h200, {}, 32.35e9, 6.9},
      {"gpt2-1558m/29.88 GB with a link", xl, h200, both, 29.88e9, 7.2},
      {"gpt2-1558m/24 GB with a link", xl, h200, both, 24e9, 45},
      {"gpt2-124m/6.3 GB with a link", small, h200, both, 6.3e9, 7.8},
      {"gpt2-124m/4.2 GB with a link", small, h200, both, 4.2e9, 12.7},
      {"gpt2-124m on a cpu/3.314 GB", on_cpu, cpu, {}, 3.314e9, 1.1},
      {"gpt2-124m on a cpu/3.045 GB", on_cpu, cpu, {}, 3.045e9, 4.1}};
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

void register_model(const std::string& model, const StepDescription& step, bool with_link) {
  for (const bool link : {false, true}) {
    if (link && !with_link) continue;
    const std::string name = "search/" + model + (link ? "/link/" : "/no link/");
    for (const double percent : {102, 120, 150}) {
      const std::string each = name + std::to_string(static_cast<int>(percent));
      benchmark::RegisterBenchmark(each.c_str(), [=](benchmark::State& s) {
        search_budget(s, step, levers_of(link), percent);
      })->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark((name + "frontier").c_str(), [=](benchmark::State& s) {
      search_frontier(s, step, levers_of(link));
    })->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((name + "smallest").c_str(), [=](benchmark::State& s) {
      search_smallest(s, step, levers_of(link));
    })->Unit(benchmark::kMillisecond);
  }
}

void register_all() {
  for (const char* model : {"gpt2-tiny", "gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1558m"}) {
    register_model(model, describe_gpt2(model), /*with_link=*/true);
  }
  for (const KnownBudget& known : known_budgets()) {
    benchmark::RegisterBenchmark((std::string("budget/") + known.name).c_str(),
                                 [known](benchmark::State& s) { search_known(s, known); })
        ->Unit(benchmark::kMillisecond);
  }
  constexpr int64_t ops = 2000;
  register_model("2000 ops", describe_chain(ops), /*with_link=*/false);
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  using namespace spool::benchmarks;
  bool holds = true;
  const auto run = [&] {
    if (take_flag(argc, argv, "numbers")) return print_numbers();
    if (take_flag(argc, argv, "losses")) {
      holds = print_chunk_prices();
      return;
    }
    SweepChoice choice{.file = take_argument(argc, argv, "runs", ""),
                       .only = take_argument(argc, argv, "only", ""),
                       .jobs = std::stoi(take_argument(argc, argv, "jobs", "0")),
                       .one_flag = take_flag(argc, argv, "one-flag"),
                       .all = take_flag(argc, argv, "all")};
    if (take_flag(argc, argv, "sweep") || !choice.file.empty()) {
      if (choice.file.empty()) choice.file = SPOOL_SEARCH_RUNS;
      holds = sweep_runs(choice);
      return;
    }
    benchmark::Initialize(&argc, argv);
    spool::register_all();
    benchmark::RunSpecifiedBenchmarks();
  };
  const int status = report_errors(run);
  return status == 0 && holds ? 0 : 1;
}
