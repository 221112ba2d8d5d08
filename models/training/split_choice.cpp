#include "spool/models/training/split_choice.h"

#include <algorithm>
#include <limits>

#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/memory/arena.h"

namespace spool {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d * d < number) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// A step's input of the first layer, which is on the device whatever the plan.
size_t smallest_bytes(const TrainingConfig& c) {
  return static_cast<size_t>(c.batch * c.seq * c.model.shape().channels) * size_of(c.dtype);
}

class SplitSearch {
 public:
  SplitSearch(const RunOptions& options, Machine machine, size_t memory, const SampleLength& sample)
      : options_(options),
        machine_(std::move(machine)),
        memory_(memory),
        sample_(sample),
        rows_(options.training.rows_per_step()) {}

  SplitChoice choose() {
    add_splits();
    // Without accumulation a bf16 model has smaller gradients: that all rows at once do not fit
    // says nothing of fewer.
    if (StepSplit& whole = choice_.all.back(); whole.accumulate == 1 && whole.fits) search(whole);
    while (StepSplit* const next = next_split()) search(*next);
    return choice_;
  }

 private:
  TrainingConfig config_of(const StepSplit& split) const {
    TrainingConfig config = options_.training;
    config.batch = split.batch;
    config.accumulate = split.accumulate;
    return config;
  }

  void add_splits() {
    for (const int64_t batch : divisors(rows_)) {
      if (rows_ / batch % options_.training.replicas() != 0) continue;
      StepSplit split{.batch = batch, .accumulate = rows_ / batch};
      if (batch > 1 && batch * options_.training.seq > largest_count) break;
      split.fits = batch == 1 || smallest_bytes(config_of(split)) <= memory_;
      if (split.fits) split.seconds = split.keep_all_seconds = keep_all_seconds(split);
      choice_.all.push_back(split);
    }
  }

  double keep_all_seconds(const StepSplit& split) const {
    TrainingConfig config = config_of(split);
    if (!options_.given.contains("chunk-loss")) config.chunks.loss_rows = 0;
    StepPlans plans =
        make_plans(config, with_chunks(options_.policy, config.chunks_of_tape()), machine_);
    plans.spill_directory = options_.spill_directory;
    return foretell_step(describe_step(config), plans, machine_).seconds;
  }

  // The next one that may be the fastest: in the order of the times that keep everything or, while
  // they are many or the last one did not fit, the middle one.  No larger one is searched than one
  // that does not fit.
  StepSplit* next_split() {
    constexpr size_t few = 6;
    std::vector<StepSplit*> open = open_splits();
    const bool are_many = open.size() > few;
    if (are_many) std::erase_if(open, [&](const StepSplit* s) { return is_hopeless(*s); });
    const bool halves = has_failed_last_ && !open.empty() && open.back()->batch > fits_to_;
    if (halves) std::erase_if(open, [&](const StepSplit* s) { return s->batch < fits_to_; });
    if (open.empty()) return nullptr;
    if (halves || are_many) return open[open.size() / 2];
    return *std::ranges::min_element(open.rbegin(), open.rend(), {}, &StepSplit::seconds);
  }

  std::vector<StepSplit*> open_splits() {
    std::vector<StepSplit*> open;
    for (StepSplit& s : choice_.all) {
      const bool may_be_faster = s.fits && s.batch < fails_from_ && s.seconds < best_;
      if (may_be_faster && !s.is_searched) open.push_back(&s);
    }
    return open;
  }

  // Whether it would not be the fastest if the budget cost it nearly as much time as it cost one of
  // smaller micro-batches, which need less memory.
  bool is_hopeless(const StepSplit& split) const {
    constexpr double nearly = 0.9;
    return std::ranges::any_of(choice_.all, [&](const StepSplit& s) {
      const double cost =
          s.is_searched && s.batch < split.batch ? s.seconds - s.keep_all_seconds : 0;
      return split.keep_all_seconds + nearly * cost >= best_;
    });
  }

  void search(StepSplit& split) {
    RunRequest request = request_of(options_, machine_, /*plan=*/{});
    request.compares = false;
    const PlannedRun run =
        RunPlanner(config_of(split), request, sample_, machine_).plan_within(memory_);
    split.is_searched = true;
    split.fits = run.search->fits;
    split.seconds = run.foretold.seconds;
    note(split, run.foretold.memory.peak);
  }

  void note(const StepSplit& split, size_t peak) {
    const bool is_better = split.fits ? split.seconds < best_ : best_ == never && peak < least_;
    if (is_better) choice_.chosen = static_cast<size_t>(&split - choice_.all.data());
    if (split.fits) best_ = std::min(best_, split.seconds);
    least_ = std::min(least_, peak);
    if (split.accumulate == 1) return;
    has_failed_last_ = !split.fits;
    if (split.fits) fits_to_ = std::max(fits_to_, split.batch);
    if (split.fits) return;
    fails_from_ = split.batch;
    for (StepSplit& s : choice_.all) {
      if (s.batch > split.batch && !s.is_searched) s.fits = false;
    }
  }

  static constexpr double never = std::numeric_limits<double>::infinity();

  const RunOptions& options_;
  Machine machine_;
  size_t memory_;
  const SampleLength& sample_;
  int64_t rows_;
  SplitChoice choice_;
  double best_ = never;                                       // seconds of the fastest that fits
  size_t least_ = std::numeric_limits<size_t>::max();         // the smallest peak
  int64_t fits_to_ = 0;                                       // rows of micro-batches that fit
  int64_t fails_from_ = std::numeric_limits<int64_t>::max();  // and that do not
  bool has_failed_last_ = false;
};

// For the workspaces of as many threads as chunks are chosen for.
SplitChoice chosen_within(const RunOptions& o, const Machine& machine, size_t memory,
                          const SampleLength& sample) {
  const Machine nominal = nominal_machine(machine);
  SplitChoice choice;
  for (const int threads : threads_to_choose_for(threads_of(nominal))) {
    choice = SplitSearch(o, with_threads(nominal, threads), memory, sample).choose();
    choice.threads = threads;
    if (choice.fits()) break;
  }
  return choice;
}

}  // namespace

int64_t SplitChoice::searched() const {
  return std::ranges::count_if(all, &StepSplit::is_searched);
}

std::vector<StepSplit> SplitChoice::neighbours() const {
  std::vector<StepSplit> beside;
  if (chosen > 0) beside.push_back(all[chosen - 1]);
  if (chosen + 1 < all.size()) beside.push_back(all[chosen + 1]);
  return beside;
}

std::optional<SplitChoice> choose_split(RunOptions& o, const Machine& machine, size_t memory,
                                        const SampleLength& sample) {
  if (!o.tokens_per_step || o.resume) return {};
  const size_t limit = o.memory ? std::min(o.memory, memory) : memory;
  SplitChoice choice = chosen_within(o, machine, limit, sample);
  const StepSplit& split = choice.all[choice.chosen];
  o.training.batch = split.batch;
  o.training.accumulate = split.accumulate;
  return choice;
}

std::optional<SplitChoice> choose_split(RunOptions& o, const SampleLength& sample) {
  if (!o.tokens_per_step || o.resume) return {};
  const Machine machine{.architecture =
                            open_stream(o.device, Arena::granule, o.threads)->architecture()};
  const bool shares = o.device.type == DeviceType::cpu;  // ranks have a GPU each
  const auto ranks = static_cast<size_t>(shares ? std::max(o.training.ranks, 1) : 1);
  return choose_split(o, machine, whole_memory(o.device) / ranks, sample);
}

}  // namespace spool
