#include "spool/planner/search/search.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>

#include "spool/planner/search/bound/step_bound.h"
#include "spool/planner/search/chunk_moves.h"
#include "spool/planner/search/hand_policies.h"
#include "spool/planner/search/levels.h"
#include "spool/planner/search/proposal.h"

namespace spool {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

constexpr int max_tries = 8;          // plans of a level that are rehearsed
constexpr size_t limit_parts = 5000;  // a limit that failed is lowered by 1/5000 at least

}  // namespace

struct Search::State {
  SearchedStep step;
  Levers levers;
  MeasuredSegments measured;
  Proposer proposer;
  StepBound bound;
  std::shared_ptr<Trials> trials;
  ChunkMoves moves;
  HandPolicies by_hand;
  std::deque<std::pair<Proposal, Trials::Trial*>> tried = {};
  std::vector<Proposal> uniform;  // the fastest first
  FoundPlan keep_all = {};
  std::map<int, std::optional<FoundPlan>> searched = {}, best = {};  // by level
  std::map<int, double> optima = {};  // seconds of the fastest choice of a level, if none is lost
  std::optional<FoundPlan> smallest = {};
  std::unique_ptr<State> plain = {};

  State(const SearchedStep& s, const Levers& l)
      : State(s, l, measure_segments(s, l), std::make_shared<Trials>(s)) {}

  State(SearchedStep s, Levers l, MeasuredSegments m, std::shared_ptr<Trials> t)
      : step(std::move(s)),
        levers(std::move(l)),
        measured(std::move(m)),
        proposer(step, measured, levers),
        bound(measured, step.micro_batches, proposer.link_rate()),
        trials(std::move(t)),
        moves(measured, levers, *trials),
        by_hand(step, measured, levers, *trials),
        uniform(proposer.uniform()),
        keep_all(plan_of({.choice = keep_all_choice(measured)}, MetaStream::unlimited)) {}

  // The plan of a proposal with its costs, laid out unless more than `bytes` are live.
  const FoundPlan& plan_of(const Proposal& proposal, size_t bytes) {
    const auto is_it = [&](const auto& known) { return known.first == proposal; };
    auto at = std::ranges::find_if(tried, is_it);
    if (at == tried.end()) {
      const int64_t rows = measured.rows[proposal.choice.row_choice];
      tried.emplace_back(proposal, &trials->of(proposer.plan_of(proposal), rows));
      at = std::prev(tried.end());
    }
    return trials->laid_out(*at->second, bytes);
  }

  // The seconds of the fastest choice within the level; infinite if there is none.
  double optimum(int level) {
    const auto [at, is_new] = optima.try_emplace(level, infinite);
    if (is_new) {
      const size_t bytes = level_bytes(level);
      const auto proposal =
          proposer.fastest({.step = bytes, .run = bytes, .host = levers.host_bytes});
      if (proposal) at->second = proposal->seconds;
    }
    return at->second;
  }

  const std::optional<FoundPlan>& search(int level) {
    const auto [at, is_new] = searched.try_emplace(level);
    if (is_new) at->second = search_within(level_bytes(level));
    return at->second;
  }

  // The fastest plan within the budget that treats equal segments alike, if faster than `seconds`.
  // Such plans are laid out without waste, so they help where others miss a budget by less than a
  // level.
  const FoundPlan* uniform_within(size_t budget, double seconds) {
    for (const Proposal& p : uniform) {
      if (p.seconds >= seconds) break;
      if (live_bytes(measured, p.choice) > budget) continue;
      const FoundPlan& found = plan_of(p, budget);
      if (found.peak <= budget && found.seconds < seconds) return &found;
    }
    return nullptr;
  }

  // Proposals of decreasing bytes until the plan of one fits and takes fewer than `seconds`.
  template <class Propose>
  std::optional<FoundPlan> first_that_fits(size_t bytes, double seconds, const Propose& propose) {
    ProposalLimits limits{.step = bytes, .run = bytes, .host = levers.host_bytes};
    for (int i = 0; i < max_tries; ++i) {
      std::optional<Proposal> proposal = propose(limits);
      if (!proposal || proposal->seconds >= seconds) return {};
      const size_t for_choice = limits.step + proposal->state_on_host;
      proposal->choice = in_groups(measured, std::move(proposal->choice), for_choice);
      const FoundPlan& found = plan_of(*proposal, bytes);
      const bool uses_host = proposal->state_on_host > 0 || !proposal->choice.offloaded.empty();
      if (uses_host && found.host_bytes > levers.host_bytes) {
        limits.host -= std::min(limits.host, found.host_bytes - levers.host_bytes);
        continue;
      }
      if (found.peak <= bytes) return found;
      const size_t over = found.peak - bytes;
      // Below the modelled bytes of this proposal, the next one must differ.
      const size_t modelled =
          std::max(live_in_segments(measured, proposal->choice) - proposal->state_on_host,
                   proposer.min_with(proposal->state_on_host) + 1);
      const size_t min = std::max(over, limits.step / limit_parts);
      limits.step = std::min(limits.step - std::min(limits.step, min), modelled - 1);
    }
    return {};
  }

  std::optional<FoundPlan> first_that_fits(size_t bytes) {
    return first_that_fits(bytes, infinite,
                           [&](const ProposalLimits& limits) { return proposer.fastest(limits); });
  }

  std::optional<FoundPlan> search_within(size_t bytes) {
    std::optional<FoundPlan> found = first_that_fits(bytes);
    if (found) found = moves.faster_within(bytes, *std::move(found));
    return found;
  }

  const std::vector<Family>& families() const { return proposer.families(); }

  // With as much of the state on the host as this plan has.
  std::optional<FoundPlan> search_family(size_t family, size_t bytes, double seconds,
                                         const Plan& like) {
    const bool streams = measured.state && like.optimizer_state == OptimizerState::streamed;
    const size_t state = streams ? measured.state->bytes : 0;
    const size_t on_host = state - std::min(state, like.state_bytes_on_device);
    return first_that_fits(bytes, seconds, [&](const ProposalLimits& limits) {
      return proposer.fastest_of(family, on_host, limits);
    });
  }

  // Whether plans of the family may do what this one does in a more regular way: with about the
  // same rows of the loss, or with alike regions.
  bool is_near(const Family& family, const FoundPlan& found) const {
    const auto has_chunks = [](const Region& r) { return r.chunks > 1; };
    if (family.region && family.row_choice) return false;
    if (family.region) return std::ranges::any_of(found.plan.regions, has_chunks);
    if (!family.row_choice) return false;
    const int64_t rows = measured.rows[*family.row_choice];
    const int64_t all = measured.rows.size() > 1 ? 2 * measured.rows[1] : 0;
    const auto chunks = [&](int64_t of) { return of > 0 ? 1.0 * all / of : 1.0; };
    const double ratio = chunks(rows) / chunks(found.loss_rows);
    return 0.4 < ratio && ratio < 2.5;
  }

  // A factor for a proposal's seconds that gives a lower bound on its plan's: with measured
  // kernels, offloading and streaming may take less than the sum of their costs.
  double certainty() const {
    const bool is_measured = step.machine.kernels && (levers.state_share || levers.offload_to);
    return is_measured ? 0.9 : 1;
  }

  // The fastest plan of this level and those below it.
  const std::optional<FoundPlan>& plan_of_level(int level) {
    if (const auto at = best.find(level); at != best.end()) return at->second;
    std::optional<FoundPlan> fastest = search(level);
    for (int lower = level - 1; lower > 0; --lower) {
      if (std::isinf(optimum(lower))) break;
      if (fastest && optimum(lower) * certainty() >= fastest->seconds) break;
      const std::optional<FoundPlan>& other = search(lower);
      if (other && (!fastest || other->seconds < fastest->seconds)) fastest = other;
    }
    return best[level] = std::move(fastest);
  }

  // The plan of the lowest level that has one, if it takes fewer bytes than this plan.
  FoundPlan smaller_of_lowest_level(FoundPlan found) {
    // Below the smallest level with a proposal, no level has a plan.
    int fails = 0, level = level_within(keep_all.peak);
    while (level - fails > 1) {
      const int middle = (fails + level) / 2;
      (std::isinf(optimum(middle)) ? fails : level) = middle;
    }
    for (; level_bytes(level) < found.peak; ++level) {
      if (auto smaller = first_that_fits(level_bytes(level))) return *std::move(smaller);
    }
    return found;
  }

  const FoundPlan& smallest_plan() {
    if (smallest) return *smallest;
    smallest = keep_all;
    if (has_others()) {
      if (const FoundPlan* found = by_hand.smallest_below(smallest->peak)) smallest = *found;
    }
    smallest = smaller_of_lowest_level(*std::move(smallest));
    for (const Proposal& p : uniform) {
      if (live_bytes(measured, p.choice) >= smallest->peak) continue;
      const FoundPlan& found = plan_of(p, smallest->peak);
      if (found.peak < smallest->peak) smallest = found;
    }
    // Layouts have luck: fewer bytes may be met where a little fewer were not.
    constexpr size_t parts[] = {500, 200, 100, 50};
    for (size_t i = 0; i < std::size(parts);) {
      const auto found = first_that_fits(smallest->peak - smallest->peak / parts[i]);
      i = found ? 0 : i + 1;
      if (found) smallest = found;
    }
    for (size_t family = first_alike_family; family < families().size(); ++family) {
      for (int times = 0; times < 4; ++times) {
        const size_t less = smallest->peak - Arena::granule;
        std::optional<FoundPlan> found = search_family(family, less, infinite, smallest->plan);
        if (!found) break;
        smallest = std::move(found);
      }
    }
    smallest = moves.smaller(*std::move(smallest));
    if (State* few = without_others(); few && few->smallest_plan().peak < smallest->peak) {
      smallest = few->smallest_plan();
    }
    speed_up(*smallest);
    // What no budget below finds is the smallest.
    while (auto found = found_within(smallest->peak - Arena::granule)) {
      smallest = std::move(found);
      speed_up(*smallest);
    }
    return *smallest;
  }

  // Replaces the plan by a faster one within its peak, if there is one.
  void speed_up(FoundPlan& plan) {
    std::vector<Proposal> alike = proposer.alike_at_first(plan.peak);
    if (alike.size() > max_tries) alike.resize(max_tries);
    for (const Proposal& p : alike) {
      const FoundPlan& found = plan_of(p, plan.peak);
      if (found.peak <= plan.peak && found.seconds < plan.seconds) plan = found;
    }
    const auto other = search_within(plan.peak);
    if (other && other->seconds < plan.seconds) plan = *other;
    if (!has_others()) return;
    if (const FoundPlan* found = by_hand.fastest_within(plan.peak, plan.seconds)) plan = *found;
    plan = moves.faster_within(plan.peak, plan);
    try_families(plan, plan.peak);
  }

  // Replaces the plan by a faster one within the budget whose segments are alike, if there is one.
  void try_families(FoundPlan& plan, size_t budget) {
    for (size_t family = first_alike_family; family < families().size(); ++family) {
      if (const auto other = search_family(family, budget, plan.seconds, plan.plan)) {
        FoundPlan faster = moves.faster_within(budget, *other);
        if (faster.seconds < plan.seconds) plan = std::move(faster);
      }
    }
  }

  // The search among plans that only recompute and cut the loss into chunks; null if this is that
  // search.  The costs of offloading and streaming are less certain before a rehearsal, and regions
  // in chunks have levels of their own; plans of both searches compete, so none gets slower.
  bool has_others() const { return levers.regions || levers.state_share || levers.offload_to; }
  State* without_others() {
    if (!has_others() || plain) return plain.get();
    Levers few = levers;
    few.regions = few.state_share = false;
    few.offload_to.reset();
    plain = std::make_unique<State>(
        step, few, levers.regions ? measure_segments(step, few) : measured.without_state(), trials);
    return plain.get();
  }

  int rehearsals() const {
    return measured.rehearsals + (plain ? plain->measured.rehearsals : 0) + trials->rehearsals();
  }

  bool is_proven(const std::optional<FoundPlan>& found, size_t budget) {
    return found && found->seconds <= (1 + levers.proven_gap) * bound.seconds_within(budget);
  }

  // Nothing if no plan fits.
  std::optional<FoundPlan> plan_within(size_t budget) {
    std::optional<FoundPlan> found = found_within(budget);
    const bool is_proven_fast = is_proven(found, budget);
    constexpr size_t near = 32;  // of the smallest budget, whose plan was searched for the longest
    if (is_proven_fast || !std::isinf(optimum(level_within(budget - budget / near)))) return found;
    const FoundPlan& least = smallest_plan();
    if (least.peak <= budget) {
      const FoundPlan other = moves.faster_within(budget, least);
      if (!found || other.seconds < found->seconds) found = other;
    }
    if (found) try_families(*found, budget);
    return found;
  }

  // The same without what is tried near the smallest budget.
  std::optional<FoundPlan> found_within(size_t budget) {
    std::optional<FoundPlan> fastest;
    const auto take = [&](const FoundPlan& other) {
      if (!fastest || other.seconds < fastest->seconds) fastest = other;
    };
    const auto seconds = [&] { return fastest ? fastest->seconds : infinite; };
    if (keep_all.peak <= budget) take(keep_all);
    if (is_proven(fastest, budget) && !step.machine.kernels) return fastest;
    const int level = level_within(budget);
    if (optimum(level) < seconds()) {
      if (const auto& other = plan_of_level(level)) take(*other);
    }
    // A level is up to 0.2 % lower than the budget.  With a link and many segments, each further
    // search takes long.
    constexpr size_t many = 100;
    if (!levers.offload_to || measured.segments.size() < many) {
      if (const auto other = search_within(budget)) take(*other);
    }
    if (const FoundPlan* alike = uniform_within(budget, seconds())) take(*alike);
    if (State* few = without_others()) {
      if (const auto other = few->found_within(budget)) take(*other);
    }
    if (is_proven(fastest, budget)) return fastest;
    for (const Proposal& p : proposer.with_room_for_more_rows(budget, seconds())) {
      // Its layout may have holes that another one has not.
      const FoundPlan more_rows = moves.faster_within(budget, plan_of(p, budget));
      if (more_rows.peak <= budget) take(more_rows);
    }
    // Each family has a dynamic program of its own for each way of offloading, which takes long.
    const std::optional<FoundPlan> first = fastest;
    const bool has_time = first && !levers.offload_to;
    for (size_t family = first_alike_family; has_time && family < families().size(); ++family) {
      if (!is_near(families()[family], *first)) continue;
      if (const auto other = search_family(family, budget, seconds(), first->plan)) {
        take(moves.faster_within(budget, *other));
      }
    }
    // Without copies the uniform choices have all policies.
    if (!levers.state_share && !levers.offload_to) return fastest;
    if (const FoundPlan* other = by_hand.fastest_within(budget, seconds())) {
      take(moves.faster_within(budget, *other));
    }
    return fastest;
  }

  // The result for a plan that was found within the budget, or null if none was.
  SearchResult result(const std::optional<FoundPlan>& found, size_t budget) {
    SearchResult result{.found = found ? *found : smallest_plan(),
                        .fits = found.has_value(),
                        .keep_all_peak = keep_all.peak,
                        .keep_all_seconds = keep_all.seconds};
    const size_t bytes = found ? budget : result.found.peak;
    double min = bound.seconds_within(bytes);
    // Measured kernels of chunks between those that were rehearsed may be faster than both.
    if (step.machine.kernels) min = std::min(min, result.found.seconds);
    result.lower_bound = std::isfinite(min) ? min : 0;
    result.rehearsals = rehearsals();
    return result;
  }
};

Search::Search(const SearchedStep& step, const Levers& levers)
    : state_(std::make_unique<State>(step, levers)) {}

Search::~Search() = default;

SearchResult Search::plan(size_t budget) {
  const double start = host_clock();
  SearchResult result = state_->result(state_->plan_within(budget), budget);
  result.plan_seconds = host_clock() - start;
  return result;
}

SearchResult Search::keep_all_or_plan(size_t bytes) {
  if (state_->keep_all.peak > bytes) return plan(bytes);
  const double start = host_clock();
  SearchResult result = state_->result(state_->keep_all, bytes);
  result.plan_seconds = host_clock() - start;
  return result;
}

SearchResult Search::comparison(size_t budget) { return state_->result(state_->keep_all, budget); }

double Search::expected_seconds(size_t budget) {
  if (state_->keep_all.peak <= budget) return state_->keep_all.seconds;
  constexpr size_t holes = 16;  // layouts often leave a part of so many
  for (const size_t bytes : {budget - budget / holes, budget}) {
    const ProposalLimits limits{.step = bytes, .run = bytes, .host = state_->levers.host_bytes};
    if (const auto proposal = state_->proposer.fastest(limits)) return proposal->seconds;
  }
  return infinite;
}

size_t Search::smallest_budget() { return state_->smallest_plan().peak; }

size_t Search::keep_all_peak() { return state_->keep_all.peak; }

}  // namespace spool
