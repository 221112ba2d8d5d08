// Trains a small transformer on ranks that are processes with a GPU each, as one of them.
// nccl_test.py starts it with a stage of ZeRO, a type, the number of micro-batches of a step, where
// the optimizer's state is, whether steps are graphs, and what befalls rank 1: it never arrives at
// the others' exchanges, or dies, hangs or throws in the second step; or all come late at times.
// Prints the peak that the rank reached, the bytes that it gave, what was foretold of both, and a
// hash of what it trained.

#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "spool/models/steps/step_executor.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/log.h"
#include "spool/runtime/ranks/launcher.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/ranks/timeout.h"
#include "tests/models/steps/transformer_testing.h"

namespace spool::testing {
namespace {

constexpr int64_t steps = 3;

struct GpuRun {
  TransformerSizes sizes = {.layers = 2, .dropout = 0.1F};
  StepConfig config = {};
  StepPlans plans = {};
  std::string fate = {};
};

void befall(const std::string& fate) {
  if (fate == "dies") std::raise(SIGKILL);
  if (fate == "hangs") std::raise(SIGSTOP);
  if (fate == "throws") throw std::runtime_error("the text has no more rows");
}

void come_late_at_times() {
  static std::mt19937 random(std::random_device{}());
  const auto milliseconds = std::uniform_int_distribution(-10, 20)(random);
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// What a rank gives to others in the exchanges of a rehearsed step.
size_t foretold_sent(const StepDescription& step, const StepPlans& plans, const Machine& machine) {
  size_t bytes = 0;
  for (const TraceSpan& span : rehearse_step(step, plans, machine, {.trace = true}).trace) {
    const bool is_exchange = span.lane == TraceLane::exchange && span.activity == Activity::host;
    bytes += is_exchange ? span.bytes : 0;
  }
  return bytes;
}

GpuRun run_of(char** words, int ranks) {
  GpuRun run;
  run.config.zero = std::atoi(words[0]);
  run.config.dtype = run.sizes.dtype = *parse<DType>(words[1]);
  run.config.accumulate = std::atoi(words[2]);
  run.config.ranks = ranks;
  run.plans.step.optimizer_state = *parse<OptimizerState>(words[3]);
  run.plans.graph = std::string(words[4]) == "graph";
  run.fate = words[5];
  return run;
}

void train(const GpuRun& run, const std::shared_ptr<Communicator>& ranks, const Device& device) {
  const StepDescription step = describe(run.sizes, run.config);
  const auto stream = open_stream(device, size_t{64} << 20);
  Machine machine{.architecture = stream->architecture()};
  machine.mesh.rank = ranks->rank();
  StepPlans plans = run.plans;
  plans.host_bytes = rehearse_step(step, plans, machine).report.host.peak;
  const Report report = rehearse_step(step, plans, machine).report;

  stream->join(ranks);
  Transformer model(run.sizes, *stream);
  StepExecutor executor(model, run.config, plans, *stream);
  model.initialise();
  executor.optimizer().initialise();
  executor.prepare(/*learning_rate=*/0.01);
  const size_t before = ranks->sent();
  Hash hash;
  for (int64_t number = 0; number < steps; ++number) {
    const int64_t targets = run.config.accumulate * run.sizes.batch * run.sizes.tokens;
    executor.run({.number = number, .learning_rate = 0.01, .targets = targets}, [&](int64_t micro) {
      if (number == 1 && ranks->rank() == 1) befall(run.fate);
      if (run.fate == "delays") come_late_at_times();
      model.upload(run.config.accumulate * number + micro);
    });
    const StepResult result = executor.result();
    hash.add(std::string_view(reinterpret_cast<const char*>(&result.loss), sizeof result.loss));
  }
  for (const Parameter* p : model.parameters()) {
    std::vector<std::byte> bytes(p->data.nbytes());
    read_bytes(p->data, 0, bytes);
    hash.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  std::printf(
      "{\"rank\": %d, \"hash\": \"%llx\", \"peak\": %zu, \"foretold\": %zu, \"sent\": %zu, "
      "\"foretold_sent\": %zu}\n",
      ranks->rank(), static_cast<unsigned long long>(hash.state()), stream->memory().peak,
      report.memory.peak, ranks->sent() - before, steps * foretold_sent(step, plans, machine));
}

int train_as_rank(char** words) {
  const auto launched = rank_of_launcher();
  const int rank = launched ? launched->rank : 0, size = launched ? launched->size : 1;
  const auto host = launched ? ranks_of_launcher() : ranks_of_threads(1).front();
  const std::string fate = words[5];
  if (fate != "none" && fate != "delays") set_rank_timeout(/*seconds=*/3);
  set_logger(spdlog::stderr_logger_mt("ranks"));
  logger().set_pattern("%v");
  try {
    if (fate == "never arrives" && rank == 1) std::raise(SIGSTOP);
    const Device device = gpu_of_rank(*host);
    train(run_of(words, size), on_device(host, device), device);
  } catch (const RankEnded& e) {
    if (e.loss() == RankLoss::another_tells) return 1;
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  } catch (const std::exception& e) {
    host->fail(e.what());
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace spool::testing

int main(int count, char** words) {
  if (count != 7) return 2;
  const auto errors = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  errors->set_pattern("%v");
  spool::set_logger(std::make_shared<spdlog::logger>("ranks", errors));
  return spool::testing::train_as_rank(words + 1);
}
