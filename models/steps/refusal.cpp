#include "spool/models/steps/refusal.h"

#include <algorithm>

#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/steps/step_planner.h"
#include "spool/runtime/memory/host_memory.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

struct Advice {
  std::string text = {};
  std::vector<std::string> settings = {};  // keys
  explicit operator bool() const { return !text.empty(); }
};

Advice all_of(const Advice& a, const Advice& b) {
  if (!a) return b;
  if (!b) return a;
  Advice both{.text = a.text + "; " + b.text, .settings = a.settings};
  both.settings.insert(both.settings.end(), b.settings.begin(), b.settings.end());
  return both;
}

// Nodes that depend on whole rows cannot run in more chunks than there are rows.
StepChunks for_batch(StepChunks chunks, int64_t batch) {
  for (NodesInChunks& nodes : chunks.nodes) {
    if (nodes.last < 0) continue;
    nodes.chunks = static_cast<int>(std::min<int64_t>(nodes.chunks, batch));
  }
  std::erase_if(chunks.nodes, [](const NodesInChunks& n) { return n.chunks == 1 && n.last >= 0; });
  return chunks;
}

// The largest number from 1 to `fails` - 1 whose peak is within the limit, or 0.  The peak rises
// with the number, and is too large for `fails`.
template <class PeakWith>
int64_t largest_that_fits(int64_t fails, size_t limit, const PeakWith& peak_with) {
  int64_t fits = 0;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (peak_with(middle) <= limit ? fits : fails) = middle;
  }
  return fits;
}

// A smaller version of a run: fewer rows, shorter ones, or fewer threads.
struct Smaller {
  int64_t batch, seq;
  Machine machine;
};

// Finds changes that make a run fit into a limit.
class Adviser {
 public:
  Adviser(const PlannedSteps& planned, const RunSteps& run, const RunRequest& request,
          const Machine& machine, size_t limit)
      : planned_(planned), run_(run), request_(request), machine_(machine), limit_(limit) {}

  Advice advice() const {
    if (!run_.smaller) return of_steps();
    if (could_be_chosen()) {
      return {
          "it would fit if what is recomputed and offloaded were chosen; leave those settings out",
          {"recompute", "offload"}};
    }
    const Advice smaller = all_of(fewer_threads(), smaller_batch());
    if (smaller) return smaller;
    if (request_.steps.plan) return {"another plan may fit", {"plan"}};
    if (request_.batch_is_fixed) return of_fixed_batch();
    if (is_chosen() || run_.batch == 1) return smaller_steps();
    const size_t peak = peak_of({1, run_.seq, machine_});
    return {sentence("even a batch of 1 would take ", format_bytes(peak)), {"batch"}};
  }

 private:
  bool is_chosen() const { return planned_.is_chosen; }

  Advice of_steps() const {
    return {request_.steps.choices().placement
                ? "a smaller micro-batch may fit"
                : "without a policy and a plan, one is chosen that fits if there is one"};
  }

  Advice of_fixed_batch() const {
    if (!is_chosen()) {
      return {"a run that resumes keeps its batch; recompute or offload more",
              {"recompute", "offload"}};
    }
    const int64_t rows = planned_.chunks.loss_rows;
    return {sentence("a run that resumes keeps its batch, and its chunks of the loss (",
                     rows ? sentence(rows, " rows") : "all rows", ")")};
  }

  // Whether something is set by hand that a search could choose so that the run fits.
  bool could_be_chosen() const {
    if (!is_chosen() || request_.steps.choices().placement) return false;
    return StepPlanner(run_, request_, machine_).can_choose_within(limit_);
  }

  StepChunks chunks_for(const Smaller& s, StepChunks chunks) const {
    const bool has_fewer_tokens = s.batch < run_.batch || s.seq < run_.seq;
    return has_fewer_tokens ? for_batch(std::move(chunks), s.batch) : chunks;
  }

  // The plan that was found, adapted to steps for which the policy makes plan `own`.
  Plan suited(Plan own) const {
    Plan plan = planned_.plans.step;
    std::erase_if(plan.regions, [](const Region& r) { return r.chunks > 1; });
    plan.regions.insert(plan.regions.end(), own.regions.begin(), own.regions.end());
    plan.chunks = std::move(own.chunks);
    sort_regions(plan);
    return plan;
  }

  // The peak under the same plan, adapted; where ranks share micro-batches a smaller one may not
  // divide, or be cut so that the plan is not its own.
  size_t peak_of(const Smaller& s) const {
    return if_it_can_be<size_t>(MetaStream::unlimited, [&] { return peak_under_plan(s); });
  }
  bool fits(const Smaller& s) const {
    return if_it_can_be<bool>(false, [&] { return fits_as_planned(s); });
  }

  template <class Result>
  Result if_it_can_be(Result otherwise, const std::function<Result()>& result) const {
    try {
      return result();
    } catch (const Error& e) {
      if (!run_.step.shards || e.kind() != ErrorKind::invalid) throw;
      return otherwise;
    }
  }

  size_t peak_under_plan(const Smaller& s) const {
    const RunSteps run = run_.smaller(s.batch, s.seq, s.machine);
    const StepRequest& given = request_.steps;
    StepRequest same{.policy = with_chunks(given.given_policy(), chunks_for(s, planned_.chunks)),
                     .plan = given.plan,
                     .choose = Choices{},
                     .graph = given.graph,
                     .spill_directory = given.spill_directory};
    if (is_chosen() && given.choices().placement) {
      same.plan = suited(plan_step(run.step, *same.policy, machine_));
    }
    return StepPlanner(run, {.steps = same}, s.machine).plan().foretold.memory.peak;
  }

  // Whether the run fits, under the same plan or one that a search finds: the run's chunks may not
  // divide the rows of a smaller one.
  bool fits_as_planned(const Smaller& s) const {
    if (!is_chosen()) return peak_of(s) <= limit_;
    RunRequest request = request_;
    const Policy policy = request.steps.given_policy();
    request.steps.policy = with_chunks(policy, chunks_for(s, chunks_of(policy)));
    return StepPlanner(run_.smaller(s.batch, s.seq, s.machine), request, s.machine)
        .plan_within(limit_)
        .search->fits;
  }

  // The largest number below `fails` with which the run fits, or 0: found under the same plan, and
  // confirmed.
  template <class With>
  int64_t largest_below(int64_t fails, const With& with) const {
    int64_t number = largest_that_fits(fails, limit_, [&](int64_t n) { return peak_of(with(n)); });
    while (number > 0 && !fits(with(number))) number = number * 3 / 4;
    return number;
  }

  std::string with_peak(const Smaller& s) const {
    return is_chosen() ? "" : sentence(", with a peak of ", peak_of(s), " bytes");
  }

  // For a cpu, each thread of which has a workspace.
  Advice fewer_threads() const {
    const int own = threads_of(machine_);
    if (own == 0) return {};
    const auto with = [&](int64_t threads) {
      return Smaller{run_.batch, run_.seq, with_threads(machine_, static_cast<int>(threads))};
    };
    const int64_t fits = largest_below(own, with);
    if (fits == 0) return {};
    return {sentence("with ", fits, fits == 1 ? " thread" : " threads", " it would fit",
                     with_peak(with(fits))),
            {"threads"}};
  }

  Advice smaller_batch() const {
    const bool suits = is_chosen() ? !offloads(planned_.plans.step) : !request_.steps.plan;
    if (request_.batch_is_fixed || !suits) return {};
    const auto with = [&](int64_t batch) { return Smaller{batch, run_.seq, machine_}; };
    if (request_.split_is_chosen) return of_chosen_split();
    const int64_t fits = largest_below(run_.batch, with);
    if (fits == 0) return {};
    const std::string batch = sentence("a batch of ", fits, " would fit", with_peak(with(fits)));
    if (!rows_fit_alone()) return {batch, {"batch"}};
    return {batch + "; of the tokens of a step a split that fits can be chosen",
            {"batch", "tokens-per-step"}};
  }

  // Whether the same step in micro-batches of one row fits.
  bool rows_fit_alone() const {
    RunSteps run = run_.smaller(1, run_.seq, machine_);
    run.step.config.accumulate = run_.batch * run_.step.config.accumulate;
    return StepPlanner(run, request_, machine_).plan_within(limit_).search->fits;
  }

  Advice of_chosen_split() const {
    if (request_.steps.budget || !rows_fit_alone()) return {};
    return {
        "its micro-batches were chosen for the whole memory of the device; with a budget they "
        "are chosen for that",
        {"memory", "tokens-per-step"}};
  }

  // Advice that may help, if its most extreme case fits.
  Advice smaller_steps() const {
    // A chosen split is the smallest if none fits.
    const bool fewer = run_.batch > 1 && !request_.split_is_chosen, shorter = run_.seq > 1;
    if (fewer && fits({1, run_.seq, machine_})) return {"a smaller batch may fit", {"batch"}};
    if (shorter && fits({run_.batch, 1, machine_})) return {"shorter rows may fit", {"seq"}};
    if (fewer && shorter && fits({1, 1, machine_})) {
      return {"a smaller batch of shorter rows may fit", {"batch", "seq"}};
    }
    return {"no smaller batch and no shorter rows were found to fit", {"batch", "seq"}};
  }

  const PlannedSteps& planned_;
  const RunSteps& run_;
  const RunRequest& request_;
  const Machine& machine_;
  size_t limit_;
};

const char* name_of(const PlannedSteps& planned, const RunSteps& run, const RunRequest& request) {
  if (run.smaller) return planned.is_chosen ? "the smallest plan of this run" : "this run";
  return request.steps.choices().placement ? "the smallest plan of these steps"
                                           : "a step by this plan";
}

void check_host(const PlannedSteps& planned, const RunRequest& request, const Machine& machine) {
  // Whether the host's memory is the device's.
  const bool shared = std::holds_alternative<CpuArchitecture>(machine.architecture);
  const bool homes = has_homes(planned.plans.step);
  const size_t on_host = planned.foretold.host.peak;
  const auto check_limit = [&](size_t needed, size_t available, const char* place) {
    if (on_host == 0 || needed <= available) return;
    const char* const what = homes ? "what lives on the host" : "what is offloaded";
    fail_memory(
        {.what = shared ? sentence("this run, with ", what, ",") : what,
         .needed = needed,
         .available = available,
         .place = place,
         .advice = homes ? "keep more parameters on the device, or offload less"
                         : "offload less, or to a disk (disk:DIRECTORY), or keep the "
                           "optimizer's state on the device",
         .settings = homes ? std::vector<std::string>{"parameters", "offload"}
                           : std::vector<std::string>{"offload", "offload-to", "optimizer-state"}});
  };
  if (homes && !shared && request.host_limit) {
    check_limit(on_host, *request.host_limit, "by the limit that is given");
  }
  if (!shared && !request.device) return;
  check_limit(on_host + (shared ? planned.foretold.memory.peak : 0),
              shared ? request.capacity : host_memory(), "on the host");
}

void check_fits(const PlannedSteps& planned, const RunSteps& run, const RunRequest& request,
                const Machine& machine) {
  const auto check_limit = [&](const char* place, size_t bytes) {
    if (planned.foretold.memory.peak <= bytes) return;
    Advice advice = Adviser(planned, run, request, machine, bytes).advice();
    advice.settings.insert(advice.settings.begin(), "memory");
    const char* its = run.smaller && !planned.is_chosen ? "the" : "its";
    fail_memory({.what = name_of(planned, run, request),
                 .needed = planned.foretold.memory.peak,
                 .available = bytes,
                 .place = place,
                 .advice = sentence(its, " peak is in ", place_of_peak(planned, run.step, machine),
                                    "; ", advice.text),
                 .settings = advice.settings});
  };
  if (request.steps.budget) check_limit("in the budget", request.steps.budget);
  if (planned.is_chosen) check_limit("on the device", planned.limit);
  check_limit("on the device", request.capacity);
  check_host(planned, request, machine);
}

}  // namespace

std::optional<Error> refuse(const PlannedSteps& planned, const RunSteps& run,
                            const RunRequest& request, const Machine& machine) {
  try {
    check_fits(planned, run, request, machine);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::memory) throw;
    return error;
  }
  return std::nullopt;
}

std::string place_of_peak(const PlannedSteps& planned, const StepDescription& step,
                          const Machine& machine) {
  if (planned.is_chosen) return planned.search->found.binding;
  const RehearsedStep rehearsed = rehearse_step(with_micro_batches(step, distinct_micro_batches),
                                                planned.plans, machine, {.survey = true});
  if (rehearsed.report.memory.peak < planned.foretold.memory.peak) {
    return "an evaluation or a text sample";
  }
  return description(*rehearsed.survey.peak());
}

}  // namespace spool
