#include "spool/planner/sharding/shard_states.h"

namespace spool {
namespace {

// The cheapest way for what is read and what is made.
struct CheapestWays {
  Costs cost = {};
  std::vector<uint32_t> way = {};
};

CheapestWays cheapest_ways(const Stage& stage, const Costs& own) {
  const size_t ways = own.size(), reads = stage.reading.size() / ways;
  CheapestWays best{Costs(reads * stage.outputs, impossible_cost),
                    std::vector<uint32_t>(reads * stage.outputs)};
  for (size_t r = 0; r < reads; ++r) {
    for (size_t w = 0; w < ways; ++w) {
      const int64_t cost = stage.reading[r * ways + w] + own[w];
      const size_t at = r * stage.outputs + stage.made[w];
      if (cost >= best.cost[at]) continue;
      best.cost[at] = cost;
      best.way[at] = static_cast<uint32_t>(w);
    }
  }
  return best;
}

}  // namespace

Costs after(const Stage& stage, const Costs& own, const Costs& before, Steps* steps) {
  const CheapestWays best = cheapest_ways(stage, own);
  Costs cost(stage.states, impossible_cost);
  if (steps) *steps = {std::vector<uint32_t>(cost.size()), std::vector<uint32_t>(cost.size())};
  for (size_t s = 0; s < before.size(); ++s) {
    const size_t row = stage.read[s] * stage.outputs, to = stage.kept[s] * stage.outputs;
    for (size_t o = 0; o < stage.outputs; ++o) {
      const int64_t sum = before[s] + best.cost[row + o];
      if (sum >= cost[to + o]) continue;
      cost[to + o] = sum;
      if (steps) {
        steps->way[to + o] = best.way[row + o];
        steps->before[to + o] = static_cast<uint32_t>(s);
      }
    }
  }
  return cost;
}

}  // namespace spool
