#include "spool/planner/search/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>

#include "spool/planner/offsets.h"
#include "spool/planner/search/proposal.h"
#include "spool/planner/search/step_bound.h"

namespace spool {
namespace {

// Levels are the powers of this, in bytes.
constexpr double level_ratio = 1.002;
constexpr int max_tries = 8;          // plans of a level that are rehearsed
constexpr size_t limit_parts = 5000;  // a limit that did not do is lowered by such a part at least

size_t level_bytes(int level) {
  const auto bytes = static_cast<size_t>(std::pow(level_ratio, level));
  return bytes / Arena::granule * Arena::granule;
}

// The highest level within the budget.
int level_within(size_t budget) {
  budget = std::clamp<size_t>(budget, 1, MetaStream::unlimited);
  auto level = static_cast<int>(std::log(static_cast<double>(budget)) / std::log(level_ratio));
  while (level_bytes(level + 1) <= budget) ++level;
  while (level > 0 && level_bytes(level) > budget) --level;
  return level;
}

}  // namespace

struct Search::State {
  // What came of a proposal: a plan within so many bytes, or nothing, and how far it missed them.
  struct TriedProposal {
    Proposal proposal;
    size_t bytes = 0, over = 0;
    std::optional<FoundPlan> found = {};
  };

  SearchedStep step;
  Levers levers;
  MeasuredSegments measured;
  Proposer proposer;
  StepBound bound;
  FoundPlan keep_all = {};
  std::map<int, std::optional<FoundPlan>> searched = {}, best = {};  // by level
  std::map<int, double> optima = {};  // seconds of the fastest choice of a level, if none is lost
  std::optional<FoundPlan> smallest = {};
  std::vector<TriedProposal> tried = {};
  int rehearsals = 0;

  State(SearchedStep s, Levers l)
      : step(std::move(s)),
        levers(std::move(l)),
        measured(measure_segments(step, levers)),
        proposer(step, measured, levers),
        bound(measured, step.micro_batches, proposer.link_rate()) {
    rehearsals = measured.rehearsals;
    keep_all = *rehearse_and_lay_out(keep_all_proposal(), std::numeric_limits<size_t>::max());
  }

  Proposal keep_all_proposal() const {
    std::vector<bool> first_rows(measured.rows.size());
    first_rows.front() = true;
    return {.choice = *fastest_choice(measured, MetaStream::unlimited, first_rows)};
  }

  RehearsedStep rehearse(const FoundPlan& found, const AskedOfRehearsal& asked) {
    ++rehearsals;
    return step.rehearse(found.plan, found.layout, asked);
  }

  // As rehearse_and_lay_out(), once for equal proposals.
  std::optional<FoundPlan> find(const Proposal& proposal, size_t bytes, size_t* over) {
    for (const TriedProposal& t : tried) {
      if (t.proposal != proposal || (t.found ? t.found->peak > bytes : t.bytes < bytes)) continue;
      *over = t.found ? 0 : t.over + (t.bytes - bytes);
      return t.found;
    }
    TriedProposal t{.proposal = proposal, .bytes = bytes};
    t.found = rehearse_and_lay_out(proposal, bytes, &t.over);
    *over = t.over;
    return tried.emplace_back(std::move(t)).found;
  }

  // Nothing if it does not fit into so many bytes; `over` is then by how much.
  std::optional<FoundPlan> rehearse_and_lay_out(const Proposal& proposal, size_t bytes,
                                                size_t* over = nullptr) {
    const size_t row_choice = proposal.choice.row_choice;
    FoundPlan found{.plan = proposer.plan_of(proposal), .loss_rows = measured.rows[row_choice]};
    RehearsedStep rehearsed = rehearse(found, {.survey = true, .lifetimes = true});
    const SurveyedWork& peak = *rehearsed.survey.peak();
    found.binding = description(peak);
    found.seconds = step_seconds(rehearsed, step.micro_batches);
    found.host_bytes = rehearsed.report.host.peak;
    found.disk_bytes = rehearsed.report.disk.peak;
    const size_t other = step.other_peak(found.loss_rows, found.plan);
    const auto fits = [&](size_t needed) {
      found.peak = std::max(needed, other);
      if (over) *over = found.peak > bytes ? found.peak - bytes : 0;
      return found.peak <= bytes;
    };
    if (!fits(peak.live)) return {};
    const bool any = bytes == std::numeric_limits<size_t>::max();
    if (!any && fits(rehearsed.report.memory.peak)) return found;
    const size_t between_steps = peak.live - max_live(rehearsed.lifetimes);
    const size_t enough = any || bytes < between_steps ? 0 : bytes - between_steps;
    found.layout = lay_out(std::move(rehearsed.lifetimes), enough);
    if (!fits(between_steps + found.layout->bytes)) return {};
    const size_t placed = rehearse(found, {}).report.memory.peak;
    if (placed >= rehearsed.report.memory.peak) {
      found.layout.reset();
      return fits(rehearsed.report.memory.peak) ? std::optional(found) : std::nullopt;
    }
    return fits(placed) ? std::optional(found) : std::nullopt;
  }

  // The seconds of the fastest choice within the level; infinite if there is none.
  double optimum(int level) {
    const auto [at, is_new] = optima.try_emplace(level, std::numeric_limits<double>::infinity());
    if (is_new) {
      const size_t bytes = level_bytes(level);
      const auto proposal = proposer.fastest(bytes, bytes);
      if (proposal) at->second = proposal->seconds;
    }
    return at->second;
  }

  const std::optional<FoundPlan>& search(int level) {
    const auto [at, is_new] = searched.try_emplace(level);
    if (is_new) at->second = search_within(level_bytes(level));
    return at->second;
  }

  std::optional<FoundPlan> search_within(size_t bytes) {
    size_t limit = bytes;
    for (int i = 0; i < max_tries; ++i) {
      auto proposal = proposer.fastest(limit, bytes);
      if (!proposal) return {};
      const size_t for_choice = limit + proposal->state_on_host;
      proposal->choice = in_groups(measured, std::move(proposal->choice), for_choice);
      size_t over = 0;
      if (auto found = find(*proposal, bytes, &over)) return found;
      // Below what the model says of this proposal, the next one is another.
      const size_t modelled = live_bytes(measured, proposal->choice) - proposal->state_on_host;
      limit = std::min(limit - std::min(limit, std::max(over, limit / limit_parts)), modelled - 1);
    }
    return {};
  }

  // The fastest plan of this level and those below.
  const std::optional<FoundPlan>& plan_of_level(int level) {
    if (const auto at = best.find(level); at != best.end()) return at->second;
    std::optional<FoundPlan> fastest = search(level);
    for (int lower = level - 1; lower > 0; --lower) {
      if (std::isinf(optimum(lower))) break;
      if (fastest && optimum(lower) >= fastest->seconds) break;
      const std::optional<FoundPlan>& other = search(lower);
      if (other && (!fastest || other->seconds < fastest->seconds)) fastest = other;
    }
    return best[level] = std::move(fastest);
  }

  const FoundPlan& smallest_plan() {
    if (smallest) return *smallest;
    // No level below the smallest for which there is a proposal has a plan.
    int fails = 0, level = level_within(keep_all.peak);
    while (level - fails > 1) {
      const int middle = (fails + level) / 2;
      (std::isinf(optimum(middle)) ? fails : level) = middle;
    }
    for (; level_bytes(level) < keep_all.peak; ++level) {
      if (const auto& found = search(level)) return smallest.emplace(*found);
    }
    return smallest.emplace(keep_all);
  }

  // Nothing if no plan fits.
  const FoundPlan* plan_within(size_t budget) {
    const FoundPlan* found = nullptr;
    if (keep_all.peak <= budget) found = &keep_all;
    const int level = level_within(budget);
    if (!found || optimum(level) < found->seconds) {
      const std::optional<FoundPlan>& other = plan_of_level(level);
      if (other && (!found || other->seconds < found->seconds)) found = &*other;
    }
    if (!found && smallest_plan().peak <= budget) found = &smallest_plan();
    return found;
  }
};

Search::Search(SearchedStep step, Levers levers)
    : state_(std::make_unique<State>(std::move(step), std::move(levers))) {}

Search::~Search() = default;

SearchResult Search::plan(size_t budget) {
  const auto start = std::chrono::steady_clock::now();
  State& s = *state_;
  const FoundPlan* found = s.plan_within(budget);
  SearchResult result{.found = found ? *found : s.smallest_plan(),
                      .fits = found != nullptr,
                      .keep_all_peak = s.keep_all.peak,
                      .keep_all_seconds = s.keep_all.seconds};
  const size_t bytes = found ? budget : result.found.peak;
  const size_t state = s.measured.state ? s.measured.state->bytes : 0;
  result.lower_bound = s.bound.seconds_within(bytes, s.proposer.rows_allowed(bytes + state));
  result.rehearsals = s.rehearsals;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  result.plan_seconds = took.count();
  return result;
}

size_t Search::smallest_budget() { return state_->smallest_plan().peak; }

size_t Search::keep_all_peak() { return state_->keep_all.peak; }

}  // namespace spool
