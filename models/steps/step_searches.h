#pragma once

// The searches of a StepPlanner, of which it is a part.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "spool/models/steps/chunks/chunk_choice.h"
#include "spool/models/steps/chunks/parts_choice.h"
#include "spool/models/steps/step_planner.h"
#include "spool/planner/machines/machine.h"
#include "spool/planner/report/simple_policies.h"
#include "spool/planner/search/measured_options.h"

namespace spool {

// The parts that the request sets: of its plan, or of a run that resumes.
inline std::vector<NodesInChunks> given_parts(const StepRequest& request,
                                              const PartsChoice& choice) {
  return request.plan ? choice.of(*request.plan) : parts_in(request.given_policy().in_chunks);
}

inline bool is_free(const StepRequest& request, const PartsChoice& choice) {
  return bool(choice) && !request.plan && given_parts(request, choice).empty();
}

// The searches of a run, each begun when it is first asked.  Chunks are chosen with the first
// number of buckets in flight that is tried, or fewer.
struct StepPlanner::Searches {
  const RunSteps& run;
  const StepRequest& request;
  const PartsChoice& parts;
  int buckets_of_chunks;
  bool chooses_parts;
  SearchedStep bare;                       // in the parts of each plan
  std::vector<NodesInChunks> given_parts;  // while they are chosen, the smallest
  SearchedStep step;                       // in these
  Levers levers;                           // of the request
  bool chooses_chunks;
  bool is_nominal;       // the clock
  SearchedStep nominal;  // bare, by the nominal clock
  ChunkChoice chunks, chunks_in_faster_parts;
  std::unique_ptr<Search> asked = {}, unasked = {};
  std::map<std::pair<int64_t, std::vector<NodesInChunks>>, std::unique_ptr<Search>> in_chunks = {};

  Searches(const RunSteps& r, const StepRequest& asked_for, const Machine& machine,
           const PartsChoice& of_parts)
      : run(r),
        request(asked_for),
        parts(of_parts),
        buckets_of_chunks(request.buckets_in_flight),
        chooses_parts(is_free(asked_for, of_parts)),
        bare(searched_step(r.step, machine, other_peak_of(r), request.buckets_in_flight)),
        given_parts(chooses_parts ? parts.smallest() : spool::given_parts(asked_for, parts)),
        step(with_parts(bare, given_parts)),
        levers(levers_of(r.step, asked_for, machine)),
        chooses_chunks(!levers.loss_rows || levers.regions),
        is_nominal(has_nominal_clock(machine)),
        nominal(
            searched_step(r.step, nominal_machine(machine), other_peak_of(r), buckets_of_chunks)),
        chunks(machine, chooses_chunks,
               [this](const Machine& other) { return search_on(other, given_parts); }),
        chunks_in_faster_parts(machine, chooses_chunks, [this](const Machine& other) {
          return search_on(other, parts.faster());
        }) {}

  // A machine of the same kind, which may have other threads.
  std::unique_ptr<Search> search_on(const Machine& machine,
                                    const std::vector<NodesInChunks>& in_parts) const {
    const bool has_own_peak = !run.smaller || threads_of(machine) == threads_of(step.machine);
    OtherPeak other_peak = has_own_peak ? OtherPeak(step.other_peak)
                                        : other_peak_of(run.smaller(run.batch, run.seq, machine));
    const SearchedStep other =
        searched_step(run.step, machine, std::move(other_peak), buckets_of_chunks);
    return std::make_unique<Search>(with_parts(other, in_parts),
                                    levers_of(run.step, request, machine));
  }

  // Whether the choice of chunks for these threads is a search by the run's own clock.
  bool is_own(int threads) const { return own_is_nominal() && threads == threads_of(step.machine); }
  bool own_is_nominal() const {
    return is_nominal && request.buckets_in_flight == buckets_of_chunks;
  }

  // When the request has another number of buckets in flight.
  void begin_again() {
    bare = searched_step(run.step, bare.machine, bare.other_peak, request.buckets_in_flight);
    step = with_parts(bare, given_parts);
    asked.reset();
    unasked.reset();
    in_chunks.clear();
  }

  // By the run's own clock: chooses what the request leaves open.
  Search& by_request() {
    if (own_is_nominal()) return chunks.own();
    if (!asked) asked = std::make_unique<Search>(step, levers);
    return *asked;
  }

  // By the run's own clock: what is recomputed and offloaded is chosen, too.
  Search& by_choice() {
    if (levers.placement) return by_request();
    if (!unasked) {
      unasked = std::make_unique<Search>(step, free_levers(run.step, request, levers));
    }
    return *unasked;
  }

  // By the run's own clock, with the chunks of a plan.
  Search& with_chunks(const FoundPlan& found) {
    if (!chooses_chunks && !chooses_parts) return by_request();
    std::vector<NodesInChunks> nodes = nodes_in_chunks(found.plan);
    std::ranges::copy(parts_of(found.plan), std::back_inserter(nodes));
    auto& search = in_chunks[{found.loss_rows, nodes}];
    if (!search) {
      search = std::make_unique<Search>(with_parts(bare, nodes), with_chunks_of(found, levers));
    }
    return *search;
  }

  // A plan that another clock, or other threads or buckets in flight, found, on the run's machine.
  FoundPlan on_own_machine(const FoundPlan& found, int threads) const {
    FoundPlan own = found;
    if (threads != threads_of(step.machine) || request.buckets_in_flight != buckets_of_chunks) {
      own = lay_out_plan(bare, found.plan, found.loss_rows);
      own.peak = std::max(own.peak, step.other_peak(found.plan));
      own.binding = found.binding;
    }
    own.seconds = seconds_of(found.plan);
    return own;
  }

  double seconds_of(const Plan& plan) const {
    return step_seconds(bare.rehearse(plan, std::nullopt, {.survey = true}), step.micro_batches);
  }

  std::vector<NodesInChunks> parts_of(const Plan& plan) const {
    return chooses_parts ? parts.of(plan) : given_parts;
  }

  // By the nominal clock for these threads: chunks, and then parts.  Beside the smallest parts,
  // which leave most memory to values, a search for faster ones may pay.
  SearchResult chosen(int threads, size_t limit) {
    SearchResult result = chunks.plan(threads, limit);
    result.found.plan = spool::with_parts(std::move(result.found.plan), given_parts);
    if (!chooses_parts || !result.fits) return result;
    result.found = parts.within(nominal, std::move(result.found), limit);
    if (parts_of(result.found.plan) == parts.fastest()) return result;
    SearchResult other = chunks_in_faster_parts.plan(threads, limit);
    other.rehearsals += result.rehearsals;
    if (!other.fits) return result;
    other.found.plan = spool::with_parts(std::move(other.found.plan), parts.faster());
    FoundPlan raised = parts.within(nominal, other.found, limit);
    if (raised.seconds < other.found.seconds) other.found = std::move(raised);
    return other.found.seconds < result.found.seconds ? other : result;
  }

  // The seconds of a step that the parts of a search may be slower than others.
  double slowed_by_parts() const {
    if (!chooses_parts) return 0;
    const auto seconds = [&](const auto& nodes) {
      return seconds_of(spool::with_parts(Plan{}, nodes));
    };
    return std::max(seconds(given_parts) - seconds(parts.fastest()), 0.0);
  }

  // The nominal clock chooses chunks and parts; what else is chosen is by the run's own.
  SearchResult found(int threads, size_t limit) {
    if (chooses_chunks || chooses_parts) return within(chosen(threads, limit), threads, limit);
    SearchResult result = by_request().plan(limit);
    result.found.plan = spool::with_parts(std::move(result.found.plan), given_parts);
    return result;
  }

  // The fastest plan within the limit by the run's own clock, with the chunks of this one.
  SearchResult within(const SearchResult& chosen, int threads, size_t limit) {
    if (!chosen.fits || is_own(threads)) return chosen;
    SearchResult own = with_chunks(chosen.found).plan(limit);
    own.rehearsals += chosen.rehearsals;
    own.found.plan = spool::with_parts(std::move(own.found.plan), parts_of(chosen.found.plan));
    if (own.fits && own.found.seconds <= seconds_of(chosen.found.plan)) return own;
    const FoundPlan same = on_own_machine(chosen.found, threads);
    if (same.peak > limit) return own;
    own.fits = true;
    own.found = same;
    return own;
  }
};

}  // namespace spool
