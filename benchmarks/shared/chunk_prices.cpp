#include "shared/chunk_prices.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include "spool/models/families/gpt2.h"
#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/random.h"

namespace spool::benchmarks {
namespace {

constexpr int budgets = 9;
constexpr int measured_threads = 2;

struct Model {
  const char* name;
  TrainingConfig config;
};

std::vector<Model> models() {
  const auto preset = [](const char* name, const char* dtype) {
    GivenTexts texts;
    texts["model"] = {name};
    texts["dtype"] = {dtype};
    texts["batch"] = {"8"};
    texts["seq"] = {"128"};
    return run_options(texts).training;
  };
  TrainingConfig three{.dtype = DType::f32, .batch = 8, .seq = 64};
  three.model =
      Gpt2Config{.layers = 3, .heads = 2, .channels = 64, .context = 64, .vocabulary = 600};
  return {{"gpt2-tiny f32", preset("gpt2-tiny", "f32")},
          {"llama-tiny bf16", preset("llama-tiny", "bf16")},
          {"3 layers of 64 f32", three}};
}

RunRequest choosing() {
  return {.steps = {.choose = Choices{.placement = true, .loss_chunk = true, .regions = true}}};
}

struct Table {
  const char* name;
  Machine machine;
  bool is_random = false;
};

// In percent.
struct Prices {
  std::vector<double> all = {};
  // Of the clock alone: by no random table, whose luck no other clock foretells, and of plans whose
  // chunks hold for no more threads than run.
  std::vector<double> of_clock = {};
};

std::vector<Table> tables_of(const TrainingConfig& config) {
  CalibrationRequest request =
      calibration_of(describe_step(config), choosing().steps, Device{}, measured_threads);
  request.folder.clear();
  const Machine measured = calibrate(request).machine;
  std::vector<KernelTime> kernels = measured.kernels->all();
  Random random(/*seed=*/1, /*stream=*/0);
  for (KernelTime& k : kernels) k.seconds *= std::exp2(4 * (random.uniform() - 0.5));
  Machine noisy = measured, sheet = measured;
  noisy.kernels = std::make_shared<KernelTimes>(std::move(kernels));
  sheet.kernels.reset();
  return {{"measured", measured},
          {"measured x random", noisy, /*is_random=*/true},
          {"a sheet's", sheet}};
}

// Searches by the machine's own clock, in chunks of any size.
Search free_search(const TrainingConfig& config, const Machine& machine) {
  const RunSteps run = describe_run(std::make_shared<RestOfRun>(config, SampleLength{}, machine));
  const OtherPeak other_peak = [run](const Plan& plan) { return run.others(plan, 0, 0).peak; };
  return Search(searched_step(run.step, machine, other_peak), {.regions = true});
}

class Comparison {
 public:
  explicit Comparison(const Model& model) : model_(model) {
    const auto peaks = [&](int threads) -> StepPlanner& {
      const Machine machine = with_threads({.architecture = CpuArchitecture{}}, threads);
      return ends_
          .emplace_back(
              std::make_unique<RunPlanner>(model.config, choosing(), SampleLength{}, machine))
          ->steps();
    };
    const auto min = static_cast<double>(peaks(1).smallest_budget());
    const auto max = static_cast<double>(peaks(8).keep_all_peak());
    for (int i = 0; i < budgets; ++i) {
      bytes_.push_back(static_cast<size_t>(min * std::pow(max / min, 1.0 * i / (budgets - 1))));
    }
    bytes_.back() = static_cast<size_t>(max);
    chunks_.resize(budgets);
  }

  // Returns the number of budgets with other chunks than before.
  int add(const Table& table, int threads, Prices& prices) {
    const Machine machine = with_threads(table.machine, threads);
    RunPlanner planner(model_.config, choosing(), {}, machine);
    Search free = free_search(model_.config, machine);
    int differ = 0;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const PlannedRun run = planner.plan_within(bytes_[i]);
      if (!run.search->fits) continue;
      differ += chunks_[i] && *chunks_[i] != run.chunks;
      chunks_[i] = run.chunks;
      const double best = free.plan(bytes_[i]).found.seconds;
      prices.all.push_back(100 * (run.foretold.seconds / best - 1));
      const bool is_of_clock = !table.is_random && run.chunks_hold_for_threads == threads;
      if (is_of_clock) prices.of_clock.push_back(prices.all.back());
    }
    return differ;
  }

 private:
  const Model& model_;
  std::vector<std::unique_ptr<RunPlanner>> ends_;
  std::vector<size_t> bytes_;
  std::vector<std::optional<StepChunks>> chunks_;
};

// Prints median, mean and maximum; returns whether they are as low as they should be.
bool print(const char* of, std::vector<double> prices) {
  if (prices.empty()) return true;
  std::ranges::sort(prices);
  const double median = prices[prices.size() / 2], max = prices.back(),
               mean = std::accumulate(prices.begin(), prices.end(), 0.0) /
                      static_cast<double>(prices.size());
  std::printf("%-44s %3zu plans, slower by %.2f %% (median), %.2f %% (mean), %.2f %% (most)", of,
              prices.size(), median, mean, max);
  return median <= 0.1 && mean <= 0.7 && max <= 3;
}

}  // namespace

bool print_chunk_prices() {
  std::vector<double> of_clock;
  int different = 0;
  for (const Model& model : models()) {
    Comparison comparison(model);
    for (const Table& table : tables_of(model.config)) {
      for (const int threads : {8, 2, 1}) {
        Prices prices;
        const int differ = comparison.add(table, threads, prices);
        const std::string name = sentence(model.name, ", ", table.name, ", ", threads, " threads");
        print(name.c_str(), prices.all);
        std::printf("; other chunks: %d\n", differ);
        of_clock.insert(of_clock.end(), prices.of_clock.begin(), prices.of_clock.end());
        different += differ;
      }
    }
  }
  const bool are_low = print("by the clock alone", of_clock);
  std::printf("; other chunks: %d\n", different);
  return are_low && different == 0;
}

}  // namespace spool::benchmarks
