// Compares how a model is cut over a mesh by choice with the policies by hand, foretold, and
// measures what the choice takes: twenty models, meshes and machines.
//
//   build/release/benchmarks/sharding [--budgets] [CASE...]    all cases, or those of these numbers
//
// A line for each: milliseconds of a step that keeps all and GiB of a rank, of none, rows, megatron
// and megatron-rows, and of the fastest and the smallest candidate; how much faster than by hand
// the fastest is; and seconds of the prices, of a multiplier, and of all.  With --budgets also of
// three budgets between the smallest and the largest peak by hand: the step as planned, by choice
// and by the best hand, and the seconds to choose.  Nothing of exchanges within a micro-batch is
// hidden.
//
// It exits with 1 if by choice a step is more than 0.1 % slower than by hand, or a peak larger than
// the smallest by hand, or if a budget that some policy meets is not met.

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/families/families.h"
#include "spool/models/steps/sharding/step_shards.h"
#include "spool/models/steps/step_rehearsal.h"
#include "spool/models/training/sharding_choice.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

struct Case {
  const char *model, *mesh;
  int64_t batch, seq;
  const char* machine;
};
constexpr Case cases[] = {{"gpt2-124m", "2", 8, 1024, "h200"},
                          {"gpt2-124m", "4", 8, 1024, "h200"},
                          {"gpt2-124m", "4", 1, 1024, "h200"},
                          {"gpt2-124m", "2x4", 16, 1024, "h200"},
                          {"gpt2-124m", "2x2", 4, 256, "cpu:4,avx2,3GHz,40GB/s"},
                          {"gpt2-355m", "4", 8, 1024, "h200"},
                          {"gpt2-355m", "8", 8, 1024, "h200"},
                          {"gpt2-355m", "2x4", 2, 1024, "h200"},
                          {"gpt2-774m", "4", 4, 1024, "h200"},
                          {"gpt2-774m", "2x4", 16, 1024, "h200"},
                          {"gpt2-1558m", "8", 8, 1024, "h200"},
                          {"gpt2-1558m", "2x4", 16, 1024, "h200"},
                          {"qwen2.5-0.5b", "2", 8, 1024, "h200"},
                          {"qwen2.5-0.5b", "2x2", 8, 1024, "h200"},
                          {"qwen3-0.6b", "8", 8, 2048, "h200"},
                          {"llama-3.2-1b", "2", 2, 2048, "a100-80g"},
                          {"llama-3.2-1b", "8", 8, 2048, "h200"},
                          {"llama-3.2-1b", "2x4", 16, 2048, "h200"},
                          {"llama-3.2-1b", "8", 1, 8192, "h200"},
                          {"smollm2-135m", "2", 16, 512, "rtx4090"}};
constexpr const char* by_hand[] = {"none", "rows", "megatron", "megatron-rows"};
constexpr double gib = 1024.0 * 1024 * 1024;

// Each way: of NVLink, of older GPUs', of PCIe, and of the memory of a cpu.
Link link_of(const std::string& machine) {
  if (machine.starts_with("cpu")) return {.seconds = 5e-6, .bytes_per_second = 5e9};
  if (machine == "rtx4090") return {.seconds = 15e-6, .bytes_per_second = 20e9};
  if (machine == "a100-80g") return {.seconds = 10e-6, .bytes_per_second = 250e9};
  return {.seconds = 8e-6, .bytes_per_second = 450e9};
}

TrainingConfig config_of(const Case& c) {
  TrainingConfig config{.model = model_preset(c.model)->config,
                        .dtype = DType::bf16,
                        .batch = c.batch,
                        .seq = c.seq,
                        .ranks = parse_mesh(c.mesh).ranks()};
  config.shards = shards(c.mesh, "auto");
  return config;
}

Machine machine_of(const Case& c) {
  const MeshAxes mesh = parse_mesh(c.mesh);
  Machine machine = mesh_machine(c.machine, mesh, link_of(c.machine)).machine;
  machine.mesh = {.ranks = mesh.ranks()};
  machine.mesh.link = machine.mesh.between_machines = link_of(c.machine);
  return machine;
}

RunRequest request_of(size_t budget) {
  return {.steps = {.choose = Choices{.placement = true}, .budget = budget}};
}

// Seconds of the prices of all strategies, and of one programme beside them.
std::pair<double, double> seconds_of_search(const Case& c) {
  MetaStream stream{Machine{}};
  const std::unique_ptr<StepModel> model = describe_step(config_of(c)).make_model(stream);
  const RecordedLoss recorded = record_loss(*model, stream);
  const MeshAxes mesh = parse_mesh(c.mesh);
  const MeshMachine machine = mesh_machine(c.machine, mesh, link_of(c.machine));
  const double start = host_clock();
  ShardPrices prices(recorded.program, mesh, machine);
  for (NodeId n = 0; n < prices.nodes(); ++n) {
    for (size_t w = 0; w < prices.ways(n).size(); ++w) {
      if (prices.ways(n)[w].strategy) prices.of_op(n, w);
    }
  }
  const double priced = host_clock();
  cheapest_choice(prices, 1e-12);
  return {priced - start, host_clock() - priced};
}

// Of a policy, planned in a budget; infinite if it cannot be.
double planned_by_hand(const Case& c, const char* policy, size_t budget) {
  try {
    TrainingConfig config = config_of(c);
    config.shards = shards(c.mesh, policy);
    const PlannedRun run = RunPlanner(config, request_of(budget), {}, machine_of(c)).plan();
    if (!run.refusal) return run.foretold.seconds;
  } catch (const Error&) {  // rows that do not divide
  }
  return std::numeric_limits<double>::infinity();
}

bool compare_in_budgets(const Case& c, size_t least, size_t most) {
  bool ok = true;
  for (const size_t part : {1, 2, 3}) {
    const size_t budget = least + (most - least) * part / 4;
    const ShardingChoice choice =
        choose_sharding(config_of(c), c.mesh, request_of(budget), {}, machine_of(c));
    const JudgedSharding::Planned& found = *choice.best().planned;
    double hand = std::numeric_limits<double>::infinity();
    for (const char* policy : by_hand) hand = std::min(hand, planned_by_hand(c, policy, budget));
    fmt::print("      in {:.2f} GiB {} ms, by hand {:.2f}; chosen in {:.1f} s\n",
               static_cast<double>(budget) / gib,
               found.fits ? fmt::format("{:.2f}", 1e3 * found.seconds) : "no", 1e3 * hand,
               choice.search_seconds);
    if (std::isfinite(hand) && (!found.fits || found.seconds > 1.001 * hand)) ok = false;
  }
  return ok;
}

bool compare(size_t number, bool in_budgets) {
  const Case& c = cases[number];
  const auto [prices, multiplier] = seconds_of_search(c);
  const ShardingChoice all =
      choose_sharding(config_of(c), c.mesh, request_of(0), {}, machine_of(c));
  std::map<std::string, const JudgedSharding*> named;
  const JudgedSharding* smallest = &all.all.front();
  double best_hand = std::numeric_limits<double>::infinity();
  size_t least_hand = std::numeric_limits<size_t>::max(), most_hand = 0;
  for (const JudgedSharding& judged : all.all) {
    if (judged.peak < smallest->peak) smallest = &judged;
    named[judged.name] = &judged;
  }
  std::string hands;
  for (const char* policy : by_hand) {
    const auto at = named.find(policy);
    hands += at == named.end() ? fmt::format("{:>18}", "-")
                               : fmt::format("{:9.2f} {:8.2f}", 1e3 * at->second->seconds,
                                             static_cast<double>(at->second->peak) / gib);
    if (at == named.end()) continue;
    best_hand = std::min(best_hand, at->second->seconds);
    least_hand = std::min(least_hand, at->second->peak);
    most_hand = std::max(most_hand, at->second->peak);
  }
  const JudgedSharding& fastest = all.all.front();
  fmt::print(
      "{:2} {:13} {:4} {:2}x{:<5} {:8} {} {:9.2f} {:6.2f} {:9.2f} {:6.2f} {:6.1f} % {:6.1f} "
      "{:6.1f} {:6.2f}\n",
      number + 1, c.model, c.mesh, c.batch, c.seq, std::string(c.machine).substr(0, 8), hands,
      1e3 * fastest.seconds, static_cast<double>(fastest.peak) / gib, 1e3 * smallest->seconds,
      static_cast<double>(smallest->peak) / gib, 100 * (1 - fastest.seconds / best_hand),
      1e3 * prices, 1e3 * multiplier, all.search_seconds);
  std::fflush(stdout);
  bool ok = fastest.seconds <= 1.001 * best_hand && smallest->peak <= least_hand;
  if (in_budgets && !compare_in_budgets(c, least_hand, most_hand)) ok = false;
  return ok;
}

int compare_all(const std::vector<std::string>& words) {
  bool in_budgets = false, ok = true;
  std::vector<size_t> numbers;
  for (const std::string& word : words) {
    const auto number = static_cast<size_t>(std::atoi(word.c_str()));
    if (word == "--budgets") {
      in_budgets = true;
    } else if (number >= 1 && number <= std::size(cases)) {
      numbers.push_back(number - 1);
    } else {
      fmt::print(stderr, "sharding: '{}' is neither --budgets nor the number of a case, 1 to {}\n",
                 word, std::size(cases));
      return 2;
    }
  }
  if (numbers.empty()) {
    for (size_t i = 0; i < std::size(cases); ++i) numbers.push_back(i);
  }
  fmt::print(
      "   ms and GiB of none, rows, megatron, megatron-rows; of the fastest and of the "
      "smallest found; how much faster; ms of prices and of a multiplier, s of all\n");
  for (const size_t number : numbers) ok = compare(number, in_budgets) && ok;
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  try {
    return spool::compare_all(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    fmt::print(stderr, "sharding: {}\n", e.what());
    return 2;
  }
}
