#include "spool/planner/sharding/shard_candidates.h"

#include <algorithm>
#include <deque>

#include "spool/runtime/check.h"

namespace spool {
namespace {

constexpr size_t max_prices = 8, max_prices_beside_sums = 4;
constexpr double least_price = 1e-15, usual_price = 1e-12, highest_price = 1e-9;  // seconds, a byte
constexpr int most_axes = 3;  // on more a programme takes so long that one is enough

bool is_same_way(const Assignment& a, const Assignment& b) {
  const auto of_node = [](const Strategy& x, const Strategy& y) { return x.axes == y.axes; };
  return std::ranges::equal(a.nodes, b.nodes, of_node) && a.given == b.given;
}

struct Priced {
  double seconds_per_byte = 0;
  ShardChoice choice = {};
};

// The price of a byte at which both cost the same; 0: there is none.
double equal_price(const ShardChoice& fast, const ShardChoice& small) {
  const auto bytes = static_cast<double>(fast.bytes - small.bytes);
  const double seconds = small.seconds - fast.seconds;
  return bytes > 0 && seconds > 0 ? seconds / bytes : 0;
}

// By rising price.
std::vector<Priced> on_the_hull(ShardPrices& prices, size_t max) {
  std::vector<Priced> all;
  const auto solve = [&](double price) {
    all.push_back({price, cheapest_choice(prices, price)});
    return all.size() - 1;
  };
  const auto is_axis = [](const MeshAxis& a) { return a.size > 1; };
  if (std::ranges::count_if(prices.mesh().axes, is_axis) > most_axes) {
    solve(usual_price);
    return all;
  }
  std::deque<std::pair<size_t, size_t>> between{{solve(least_price), solve(highest_price)}};
  while (!between.empty() && all.size() < max) {
    const auto [fast, small] = between.front();
    between.pop_front();
    const double price = equal_price(all[fast].choice, all[small].choice);
    if (price <= all[fast].seconds_per_byte || price >= all[small].seconds_per_byte) continue;
    const size_t third = solve(price);
    const Assignment& how = all[third].choice.how;
    if (is_same_way(how, all[fast].choice.how) || is_same_way(how, all[small].choice.how)) continue;
    between.emplace_back(fast, third);
    between.emplace_back(third, small);
  }
  std::ranges::stable_sort(all, {}, &Priced::seconds_per_byte);
  return all;
}

void add(ShardCandidates& to, ShardCandidate added) {
  const auto is_it = [&](const ShardCandidate& c) {
    return is_same_way(c.choice.how, added.choice.how);
  };
  if (std::ranges::none_of(to.all, is_it)) to.all.push_back(std::move(added));
}

}  // namespace

ShardCandidates shard_candidates(const Program& program, const MeshAxes& mesh,
                                 const MeshMachine& machine) {
  ShardPrices prices(program, mesh, machine);
  check_axes(prices);
  ShardCandidates candidates;
  for (const ShardPolicy policy :
       {ShardPolicy::none, ShardPolicy::rows, ShardPolicy::megatron, ShardPolicy::megatron_rows}) {
    try {
      add(candidates, {name(policy), choose_shards(program, mesh, machine, policy)});
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::invalid) throw;
      candidates.refused.push_back({name(policy), e.what()});
    }
  }
  try {
    int number = 0;
    for (const bool hides_sums : {false, true}) {
      prices.hide_sums(hides_sums);
      for (Priced& found : on_the_hull(prices, hides_sums ? max_prices_beside_sums : max_prices)) {
        add(candidates, {sentence("found ", ++number), std::move(found.choice), hides_sums});
      }
    }
  } catch (const Error& e) {  // too many states
    if (e.kind() != ErrorKind::invalid) throw;
    candidates.refused.push_back({"found", e.what()});
  }
  return candidates;
}

}  // namespace spool
