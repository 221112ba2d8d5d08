#include "spool/planner/search/hand_policies.h"

#include <algorithm>
#include <array>
#include <set>

#include "spool/planner/search/chunk_moves.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr std::array recomputed_lists{"none", "norms,gelu", "norms,gelu,attention", "block"};

}  // namespace

HandPolicies::HandPolicies(const SearchedStep& step, const MeasuredSegments& measured,
                           const Levers& levers, Trials& trials)
    : step_(step), measured_(measured), levers_(levers), trials_(trials) {
  if (!levers.placement || !levers.regions) return;
  const Program& program = *measured.program;
  for (const CuttableNodes& mlp : cuttable_mlps(program, 0, program.nodes.next_id() - 1)) {
    mlp_extent_ = std::max(mlp_extent_, mlp.extent);
  }
}

std::vector<int64_t> HandPolicies::loss_rows_of_grid() const {
  std::vector<int64_t> chosen;
  const auto add_at_most = [&](int64_t max) {
    const auto fits = [&](int64_t rows) { return rows > 0 && rows <= max; };
    const auto at = std::ranges::find_if(measured_.rows, fits);
    const int64_t rows = at == measured_.rows.end() ? measured_.rows.back() : *at;
    if (std::ranges::find(chosen, rows) == chosen.end()) chosen.push_back(rows);
  };
  add_at_most(4096);
  if (!levers_.offload_to) {
    for (const int64_t rows : {1024, 128, 32, 8}) add_at_most(rows);
  }
  return chosen;
}

const std::vector<HandPolicies::Flags>& HandPolicies::grid() {
  if (!grid_.empty()) return grid_;
  std::vector<int64_t> mlp_rows{0};
  for (const int64_t chunks : {16, 64}) {
    if (mlp_extent_ >= 2 * chunks) mlp_rows.push_back(ceil_div(mlp_extent_, chunks));
  }
  std::vector<Flags> all{{}};
  const auto vary = [&](auto Flags::*lever, const auto& choices) {
    std::vector<Flags> varied;
    for (Flags flags : all) {
      for (const auto& choice : choices) {
        flags.*lever = choice;
        varied.push_back(flags);
      }
    }
    all = std::move(varied);
  };
  vary(&Flags::list, std::array<size_t, recomputed_lists.size()>{0, 1, 2, 3});
  vary(&Flags::mlp_rows, mlp_rows);
  vary(&Flags::loss_rows, loss_rows_of_grid());
  if (levers_.offload_to) vary(&Flags::offload, enumerators<Offloading>());
  if (levers_.state_share) {
    vary(&Flags::state, std::array{OptimizerState::device, OptimizerState::streamed});
  }
  grid_ = std::move(all);
  std::ranges::stable_sort(grid_, {}, [&](const Flags& f) { return seconds_without_copies(f); });
  return grid_;
}

double HandPolicies::seconds_without_copies(const Flags& flags) {
  // Kernels can be measured to be slower where nothing is streamed than where it is.
  const double gain = measured_.state ? measured_.state->gain : 0;
  Flags without = flags;
  without.loss_rows = measured_.rows.front();
  without.offload = Offloading::none;
  without.state = OptimizerState::device;
  return trial(without).found.seconds - gain;
}

HandPolicies::Flags HandPolicies::with_rows(Flags flags, int64_t mlp_rows, int64_t loss_rows) {
  flags.mlp_rows = mlp_rows;
  flags.loss_rows = loss_rows;
  return flags;
}

std::vector<HandPolicies::Flags> HandPolicies::other_chunks(const Flags& flags) const {
  Flags finer = flags, coarser = flags;
  constexpr int64_t first_chunks = 16;
  if (mlp_extent_ > 1 && flags.mlp_rows == 0) {
    finer.mlp_rows = ceil_div(mlp_extent_, std::min(first_chunks, mlp_extent_));
  } else if (mlp_extent_ > 1) {
    finer.mlp_rows = std::max<int64_t>(flags.mlp_rows / 2, 1);
    coarser.mlp_rows = flags.mlp_rows * 2 < mlp_extent_ ? flags.mlp_rows * 2 : 0;
  }
  const auto at = std::ranges::find(measured_.rows, flags.loss_rows);
  if (at != measured_.rows.end() && at + 1 != measured_.rows.end()) finer.loss_rows = at[1];
  if (at != measured_.rows.begin()) coarser.loss_rows = at[-1];
  std::vector<Flags> all;
  for (const Flags& other : {finer, coarser}) {
    if (other.mlp_rows != flags.mlp_rows)
      all.push_back(with_rows(flags, other.mlp_rows, flags.loss_rows));
    if (other.loss_rows != flags.loss_rows)
      all.push_back(with_rows(flags, flags.mlp_rows, other.loss_rows));
  }
  // The bytes may fall only if both change.
  if (finer.mlp_rows != flags.mlp_rows && finer.loss_rows != flags.loss_rows) all.push_back(finer);
  return all;
}

std::vector<HandPolicies::Flags> HandPolicies::neighbours(const Flags& flags) const {
  std::vector<Flags> all = other_chunks(flags);
  const auto add = [&](auto Flags::*lever, const auto& other) {
    if (flags.*lever == other) return;
    all.push_back(flags);
    all.back().*lever = other;
  };
  for (size_t list = 0; list < recomputed_lists.size(); ++list) add(&Flags::list, list);
  if (levers_.offload_to) {
    for (const Offloading offload : enumerators<Offloading>()) add(&Flags::offload, offload);
  }
  if (levers_.state_share) {
    for (const OptimizerState state : {OptimizerState::device, OptimizerState::streamed}) {
      add(&Flags::state, state);
    }
  }
  return all;
}

Plan HandPolicies::plan_of(const Flags& flags) const {
  Policy policy{
      .offload = flags.offload,
      .target = levers_.offload_to.value_or(OffloadTarget::host),
      .optimizer_state = levers_.state_share ? flags.state : levers_.fixed.optimizer_state,
      .loss_chunk = flags.loss_rows,
      .mlp_chunk = flags.mlp_rows < mlp_extent_ ? flags.mlp_rows : 0,
      .in_chunks = nodes_in_chunks(levers_.fixed)};
  set_recompute(policy, recomputed_lists[flags.list]);
  Plan plan = plan_from_policy(policy, step_.machine, *measured_.program, step_.rehearse_tape);
  take_homes(plan, levers_.fixed);
  return plan;
}

Trials::Trial& HandPolicies::trial(const Flags& flags) {
  Trials::Trial*& known = known_[flags];
  if (!known) known = &trials_.of(plan_of(flags), flags.loss_rows);
  return *known;
}

size_t HandPolicies::live_bytes_of(const Flags& flags) {
  const Trials::Trial& t = trial(flags);
  return t.found.host_bytes > levers_.host_bytes ? MetaStream::unlimited : t.live;
}

std::vector<int64_t> HandPolicies::mlp_ladder() const {
  std::vector<int64_t> ladder{0};
  for (int64_t chunks = 2; chunks <= std::min<int64_t>(mlp_extent_, max_tried_chunks);
       chunks *= 2) {
    ladder.push_back(ceil_div(mlp_extent_, chunks));
  }
  return ladder;
}

std::vector<HandPolicies::Flags> HandPolicies::fewest_chunks_within(const Flags& kind,
                                                                    size_t bytes) {
  std::vector<Flags> all;
  size_t loss = measured_.rows.size() - 1;  // the most chunks
  for (const int64_t mlp : mlp_ladder()) {
    const auto fits = [&](size_t at) {
      return live_bytes_of(with_rows(kind, mlp, measured_.rows[at])) <= bytes;
    };
    if (!fits(loss)) continue;
    while (loss > 0 && fits(loss - 1)) --loss;
    all.push_back(with_rows(kind, mlp, measured_.rows[loss]));
  }
  std::ranges::stable_sort(all, {}, [&](const Flags& f) { return trial(f).found.seconds; });
  return all;
}

const FoundPlan* HandPolicies::if_faster(Trials::Trial& trial, size_t budget, double& seconds) {
  const FoundPlan& found = trial.found;
  if (found.seconds >= seconds || found.host_bytes > levers_.host_bytes) return nullptr;
  if (trials_.laid_out(trial, budget).peak > budget) return nullptr;
  seconds = found.seconds;
  return &found;
}

// Tries rows of the loss between these and the next choice, for which the budget has no room.
const FoundPlan* HandPolicies::faster_with_more_rows(const Flags& flags, size_t budget,
                                                     double& seconds) {
  const auto at = std::ranges::find(measured_.rows, flags.loss_rows);
  // Rows between half and all make two chunks, as the half does.
  if (at == measured_.rows.end() || at - measured_.rows.begin() < 2) return nullptr;
  Flags fits = flags;
  int64_t fails = at[-1];
  const Trials::Trial &fewer = trial(flags),
                      &twice = trial(with_rows(flags, flags.mlp_rows, fails));
  if (fewer.live > budget || twice.live <= budget) return nullptr;
  const double between =
      seconds_between({fewer.live, fewer.found.seconds}, {twice.live, twice.found.seconds}, budget);
  if (between >= seconds) return nullptr;
  while (fails - fits.loss_rows > 1) {
    const int64_t middle = (fits.loss_rows + fails) / 2;
    const Flags other = with_rows(flags, flags.mlp_rows, middle);
    (trial(other).live <= budget ? fits.loss_rows : fails) = middle;
  }
  return if_faster(trial(fits), budget, seconds);
}

// Tries the kind's policies of fewest chunks, the fastest first, until one has a layout that fits.
const FoundPlan* HandPolicies::faster_with_other_chunks(const Flags& kind, size_t budget,
                                                        double& seconds) {
  constexpr size_t max_layouts = 8;
  std::vector<Flags> all = fewest_chunks_within(kind, budget);
  if (all.size() > max_layouts) all.resize(max_layouts);
  for (const Flags& flags : all) {
    if (const FoundPlan* found = if_faster(trial(flags), budget, seconds)) return found;
    if (const FoundPlan* found = faster_with_more_rows(flags, budget, seconds)) return found;
    for (const Flags& other : other_chunks(flags)) {
      if (const FoundPlan* found = if_faster(trial(other), budget, seconds)) return found;
    }
  }
  // Layouts with holes: other rows of the loss take as many live bytes.
  const auto found_with = [&](int64_t rows) -> const FoundPlan* {
    const Flags& first = all.front();
    return if_faster(trial(with_rows(first, first.mlp_rows, rows)), budget, seconds);
  };
  for (size_t i = 0; i < measured_.rows.size() && !all.empty(); ++i) {
    if (const FoundPlan* found = found_with(measured_.rows[i])) return found;
  }
  return nullptr;
}

const FoundPlan* HandPolicies::fastest_within(size_t budget, double seconds) {
  if (!levers_.placement) return nullptr;
  const FoundPlan* fastest = nullptr;
  for (const Flags& flags : grid()) {
    if (seconds_without_copies(flags) >= seconds) break;
    if (const FoundPlan* found = if_faster(trial(flags), budget, seconds)) fastest = found;
  }
  // From the fastest of each kind, other chunks may lead to a faster one that fits.
  constexpr size_t max_kinds = 12;
  std::vector<Flags> begun;
  for (const Flags& flags : grid_) {
    if (seconds_without_copies(flags) >= seconds || begun.size() == max_kinds) break;
    const auto is_like = [&](const Flags& other) { return other.is_like(flags); };
    const auto is_near = [&](const Flags& other) {
      return is_like(other) && seconds_without_copies(other) < seconds &&
             trial(other).live <= budget + budget / 4;
    };
    if (std::ranges::any_of(begun, is_like) || std::ranges::none_of(grid_, is_near)) continue;
    // More chunks do not make a policy faster.
    const Flags fewest = with_rows(flags, /*mlp_rows=*/0, measured_.rows.front());
    if (trial(fewest).found.seconds >= seconds) continue;
    begun.push_back(flags);
    if (const FoundPlan* found = faster_with_other_chunks(flags, budget, seconds)) fastest = found;
  }
  return fastest;
}

// From each list, levers change one at a time while the live bytes fall.  Returns all on the way.
std::vector<HandPolicies::Flags> HandPolicies::descents() {
  constexpr int64_t few_rows = 128;
  std::vector<Flags> all;
  for (size_t list = 0; list < recomputed_lists.size(); ++list) {
    Flags at{.list = list,
             .mlp_rows = mlp_extent_ > few_rows ? few_rows : 0,
             .loss_rows = measured_.rows[(measured_.rows.size() - 1) / 2],
             .offload = levers_.offload_to ? Offloading::all : Offloading::none,
             .state = levers_.state_share ? OptimizerState::streamed : OptimizerState::device};
    bool has_moved = true;
    while (has_moved) {
      all.push_back(at);
      const auto is_smaller = [&](const Flags& f) { return live_bytes_of(f) < live_bytes_of(at); };
      const std::vector<Flags> others = neighbours(at);
      const auto smaller = std::ranges::find_if(others, is_smaller);
      has_moved = smaller != others.end();
      if (has_moved) at = *smaller;
    }
  }
  return all;
}

// The policy of each kind that has about the fewest live bytes of all, with chunks near its own.
// Layouts have luck: of policies with equal live bytes, some have no holes.
std::vector<HandPolicies::Flags> HandPolicies::with_near_chunks(const std::vector<Flags>& all) {
  const auto live = [&](const Flags& f) { return live_bytes_of(f); };
  const size_t least = live(*std::ranges::min_element(all, {}, live));
  std::vector<Flags> kinds, near;
  for (const Flags& f : all) {
    const auto at = std::ranges::find_if(kinds, [&](const Flags& k) { return k.is_like(f); });
    if (at == kinds.end()) {
      kinds.push_back(f);
    } else if (live(f) <= live(*at)) {
      *at = f;
    }
  }
  for (const Flags& f : kinds) {
    if (live(f) > least + least / 2000) continue;
    std::vector<int64_t> mlp_rows{f.mlp_rows};
    if (f.mlp_rows > 1) mlp_rows.push_back(f.mlp_rows / 2);
    if (f.mlp_rows > 0 && 2 * f.mlp_rows < mlp_extent_) mlp_rows.push_back(2 * f.mlp_rows);
    for (const int64_t mlp : mlp_rows) {
      for (const int64_t rows : measured_.rows) near.push_back(with_rows(f, mlp, rows));
    }
  }
  return near;
}

// By live bytes; among equals, kinds take turns.
void HandPolicies::sort_by_live_bytes(std::vector<Flags>& all) {
  std::ranges::stable_sort(all, {}, [&](const Flags& f) { return live_bytes_of(f); });
  std::vector<std::pair<size_t, Flags>> turns;  // within those of a kind
  for (const Flags& f : all) {
    const auto is_before = [&](const auto& other) {
      return other.second.is_like(f) && live_bytes_of(other.second) == live_bytes_of(f);
    };
    turns.emplace_back(std::ranges::count_if(turns, is_before), f);
  }
  std::ranges::stable_sort(turns, {}, [&](const auto& turn) {
    return std::pair(live_bytes_of(turn.second), turn.first);
  });
  std::ranges::transform(turns, all.begin(), [](const auto& turn) { return turn.second; });
}

const FoundPlan* HandPolicies::smallest_below(size_t bytes) {
  if (!levers_.placement) return nullptr;
  std::vector<Flags> all = grid();
  for (const Flags& flags : descents()) all.push_back(flags);
  const auto live = [&](const Flags& f) { return live_bytes_of(f); };
  if (live(*std::ranges::min_element(all, {}, live)) >= bytes) return nullptr;
  for (const Flags& flags : with_near_chunks(all)) all.push_back(flags);
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::set<const Trials::Trial*> seen;  // different flags may make one plan
  std::erase_if(all, [&](const Flags& f) { return !seen.insert(&trial(f)).second; });
  sort_by_live_bytes(all);
  constexpr size_t max_laid_out = 16;
  if (all.size() > max_laid_out) all.resize(max_laid_out);
  const FoundPlan* smallest = nullptr;
  for (const Flags& flags : all) {
    if (live(flags) >= bytes) break;
    const FoundPlan& found = trials_.laid_out(trial(flags), bytes);
    if (found.peak >= bytes) continue;
    smallest = &found;
    bytes = found.peak;
  }
  return smallest;
}

}  // namespace spool
