#include "spool/planner/sharding/cheapest_shards.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "spool/planner/sharding/shard_states.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

constexpr int64_t impossible = impossible_cost;
constexpr size_t max_states = size_t{1} << 18;

using Stored = std::map<ValueId, Sharding>;

int64_t weighed(const std::optional<ShardPrice>& price, double seconds_per_byte) {
  return price ? price->weighed(seconds_per_byte) : impossible;
}

class Programme {
 public:
  Programme(ShardPrices& prices, const ShardProblem& problem)
      : prices_(prices), problem_(problem), last_reader_(prices.values().size(), -1) {
    for (NodeId n = 0; n < prices_.nodes(); ++n) {
      for (const ReadValue& read : prices_.reads(n)) {
        last_reader_[static_cast<size_t>(read.value)] = n;
        if (is_parameter(read.value)) readers_[read.value] += read.inputs.size();
      }
    }
    for (NodeId n = 0; n < prices_.nodes(); ++n) add_stage(n);
  }

  Assignment cheapest() {
    Stored stored = problem_.stored;
    std::vector<ValueId> several;
    for (const auto& [v, readers] : readers_) {
      if (is_chosen_for_several(v)) several.push_back(v);
    }
    for (const ValueId v : several) stored[v] = {};
    int64_t best = cost(stored);
    for (bool again = true; again;) {
      again = false;
      for (const ValueId v : several) {
        if (store_cheaper(v, stored, best)) again = several.size() > 1;
      }
    }
    return assignment(stored);
  }

 private:
  bool is_parameter(ValueId v) const { return prices_.program().values[v].parameter != nullptr; }
  bool is_fixed(ValueId v) const { return problem_.stored.contains(v); }
  bool is_chosen_for_several(ValueId v) const { return !is_fixed(v) && readers_.at(v) > 1; }
  const std::vector<size_t>& allowed(NodeId n) const {
    return problem_.allowed[static_cast<size_t>(n)];
  }
  int64_t weigh(const std::optional<ShardPrice>& price) const {
    return weighed(price, problem_.seconds_per_byte);
  }

  // What of a way's price depends on the way alone: the op, its results, its inputs, and parameters
  // that no other op reads.
  int64_t own_price(NodeId n, size_t way) {
    const Node& node = prices_.program().nodes[n];
    int64_t sum = weigh(prices_.of_op(n, way));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      if (prices_.is_result(v)) sum += weigh(prices_.of_result(v, prices_.way(n, way).outputs[i]));
    }
    for (const ReadValue& read : prices_.reads(n)) {
      const ValueId v = read.value;
      const auto wanted = prices_.wanted(n, read, way);
      if (is_parameter(v)) {
        if (is_fixed(v)) {
          sum += weigh(prices_.of_reading_stored(v, problem_.stored.at(v), wanted));
        } else if (!is_chosen_for_several(v)) {
          sum += price_of_storing(v, best_storage(v, wanted), wanted);
        }
      } else if (prices_.program().values[v].producer < 0) {
        sum += price_of_input(v, wanted);
      }
    }
    return std::min(sum, impossible);
  }
  int64_t price_of_storing(ValueId v, const Sharding& stored, const std::vector<Sharding>& wanted) {
    return weigh(prices_.of_storing(v, stored)) +
           weigh(prices_.of_reading_stored(v, stored, wanted));
  }
  // As the problem says, or as the op wants it that changes it, or whole.
  int64_t price_of_input(ValueId v, const std::vector<Sharding>& wanted) {
    if (is_fixed(v)) return weigh(prices_.of_reading(v, problem_.stored.at(v), wanted));
    if (!prices_.is_written(v)) return weigh(prices_.of_reading(v, Sharding{}, wanted));
    return price_of_storing(v, wanted.front(), wanted);
  }
  // Of a parameter that one op reads.  Without a price of bytes, parts would save nothing.
  Sharding best_storage(ValueId v, const std::vector<Sharding>& wanted) {
    const std::vector<Sharding> all = prices_.storages(v, wanted.front());
    if (problem_.seconds_per_byte <= 0) return all.front();
    return *std::ranges::min_element(
        all, {}, [&](const Sharding& s) { return price_of_storing(v, s, wanted); });
  }

  // The ways, parameters and inputs of equal ops are the same, unless their storage is not.
  const Costs& own_prices(NodeId n) {
    std::vector<std::pair<int, Sharding>> storage;  // 0: chosen here, 1: fixed, 2: for several
    for (const auto& [v, inputs] : prices_.reads(n)) {
      if (is_fixed(v)) {
        storage.emplace_back(1, problem_.stored.at(v));
      } else if (is_parameter(v)) {
        storage.emplace_back(is_chosen_for_several(v) ? 2 : 0, Sharding{});
      }
    }
    const auto [known, is_new] =
        own_.try_emplace(std::tuple(prices_.kind(n), allowed(n), std::move(storage)));
    if (is_new) {
      for (const size_t way : allowed(n)) known->second.push_back(own_price(n, way));
    }
    return known->second;
  }

  void add_stage(NodeId n) {
    Stage stage{.allowed = &allowed(n)};
    stage.own = own_prices(n);
    std::vector<size_t> read, kept;
    for (size_t d = 0; d < waiting_.size(); ++d) {
      const ValueId v = waiting_[d].value;
      if (reads_value(n, v)) read.push_back(d);
      if (last_reader_[static_cast<size_t>(v)] > n) kept.push_back(d);
    }
    const Digits digits(waiting_);
    stage.read = digits.numbers(read);
    stage.kept = digits.numbers(kept);
    stage.reading = reading_prices(n, read);
    std::vector<WaitingValue> next;
    for (const size_t d : kept) next.push_back(waiting_[d]);
    add_outputs(n, stage, next);
    waiting_ = std::move(next);
    stage.states = Digits(waiting_).states();
    check(stage.states <= max_states, "sharding: after node ", n, ", ",
          prices_.program().nodes[n].op->name(), ", ", waiting_.size(),
          " values wait to be read, which can be cut in ", stage.states, " ways together; at most ",
          max_states, " are tried");
    stages_.push_back(std::move(stage));
  }

  bool reads_value(NodeId n, ValueId v) const {
    return std::ranges::count(prices_.program().nodes[n].inputs, v) > 0;
  }

  // By the shardings of the values that wait and are read, and by way.
  Costs reading_prices(NodeId n, const std::vector<size_t>& digits) {
    Costs all(allowed(n).size(), 0);
    const std::vector<ReadValue> reads = prices_.reads(n);
    for (const size_t d : digits) {
      const WaitingValue& w = waiting_[d];
      const auto read = std::ranges::find(reads, w.value, &ReadValue::value);
      const Costs of_value = reading_prices(n, *read, w);
      Costs combined;
      const size_t ways = allowed(n).size();
      for (size_t r = 0; r < all.size() / ways; ++r) {
        for (size_t i = 0; i < of_value.size(); ++i) {
          combined.push_back(std::min(all[r * ways + i % ways] + of_value[i], impossible));
        }
      }
      all = std::move(combined);
    }
    return all;
  }
  Costs reading_prices(NodeId n, const ReadValue& read, const WaitingValue& w) {
    Costs all;
    for (const Sharding& from : w.as) {
      for (const size_t way : allowed(n)) {
        all.push_back(weigh(prices_.of_reading(w.value, from, prices_.wanted(n, read, way))));
      }
    }
    return all;
  }

  // Outputs that will be read wait, in the shardings in which some way makes them.
  void add_outputs(NodeId n, Stage& stage, std::vector<WaitingValue>& next) const {
    const Few<ValueId>& outputs = prices_.program().nodes[n].outputs;
    stage.made.resize(allowed(n).size(), 0);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (last_reader_[static_cast<size_t>(outputs[i])] < 0) continue;
      WaitingValue made{.value = outputs[i]};
      std::vector<size_t> digit;
      for (const size_t way : allowed(n)) {
        const Sharding& s = prices_.way(n, way).outputs[i];
        const auto at = std::ranges::find(made.as, s) - made.as.begin();
        if (at == std::ssize(made.as)) made.as.push_back(s);
        digit.push_back(static_cast<size_t>(at));
      }
      for (size_t w = 0; w < digit.size(); ++w) {
        stage.made[w] = static_cast<uint32_t>(stage.made[w] * made.as.size() + digit[w]);
      }
      stage.outputs *= made.as.size();
      next.push_back(std::move(made));
    }
  }

  // With what its ways pay for parameters that several ops read.
  Costs own_with(NodeId n, const Stored& stored) {
    Costs own = stages_[static_cast<size_t>(n)].own;
    for (const ReadValue& read : prices_.reads(n)) {
      if (!is_parameter(read.value) || !is_chosen_for_several(read.value)) continue;
      if (!stored.contains(read.value)) continue;
      const Costs reading = reading_stored(n, read, stored.at(read.value));
      for (size_t w = 0; w < own.size(); ++w) own[w] = std::min(own[w] + reading[w], impossible);
    }
    return own;
  }

  // By way.
  Costs reading_stored(NodeId n, const ReadValue& read, const Sharding& stored) {
    Costs all;
    for (const size_t way : allowed(n)) {
      const auto wanted = prices_.wanted(n, read, way);
      all.push_back(weigh(prices_.of_reading_stored(read.value, stored, wanted)));
    }
    return all;
  }

  // At least what a parameter of several readers costs that is stored so.
  int64_t least_of_storing(ValueId v, const Sharding& s) {
    int64_t sum = weigh(prices_.of_storing(v, s));
    for (NodeId n = 0; n < prices_.nodes(); ++n) {
      if (!reads_value(n, v)) continue;
      for (const ReadValue& read : prices_.reads(n)) {
        if (read.value == v) sum += std::ranges::min(reading_stored(n, read, s));
      }
    }
    return std::min(sum, impossible);
  }

  int64_t cost(const Stored& stored, std::vector<Steps>* steps = nullptr) {
    Costs costs{0};
    for (NodeId n = 0; n < prices_.nodes(); ++n) {
      Steps* const of_node = steps ? &steps->emplace_back() : nullptr;
      costs = after(stages_[static_cast<size_t>(n)], own_with(n, stored), costs, of_node);
    }
    int64_t sum = costs.front();  // nothing waits at the end
    for (const auto& [v, s] : stored) sum += weigh(prices_.of_storing(v, s));
    return std::min(sum, impossible);
  }

  // Every storage that an op may want, with each axis that it shares shared, or whole.
  std::vector<Sharding> storages_for_several(ValueId v) const {
    std::vector<Sharding> all;
    const auto add = [&](const Sharding& s) {
      if (std::ranges::find(all, s) == all.end()) all.push_back(s);
    };
    for (NodeId n = 0; n < prices_.nodes(); ++n) {
      for (const ReadValue& read : prices_.reads(n)) {
        if (read.value != v) continue;
        for (const size_t way : allowed(n)) {
          for (const Sharding& wanted : prices_.wanted(n, read, way)) {
            for (const Sharding& s : prices_.storages(v, wanted)) add(s);
          }
        }
      }
    }
    for (size_t a = 0; a < prices_.mesh().size(); ++a) {
      std::vector<Sharding> whole;
      for (const Sharding& s : all) {
        if (s[a] == State::shared()) whole.emplace_back(s)[a] = State::whole();
      }
      for (const Sharding& s : whole) add(s);
    }
    return all;
  }

  // Of equally cheap ones the first, which is found fastest where those that may be cheapest are
  // tried first.
  bool store_cheaper(ValueId v, Stored& stored, int64_t& best) {
    Stored tried = stored;
    tried.erase(v);
    const int64_t of_others = cost(tried);
    const std::vector<Sharding> all = storages_for_several(v);
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t i = 0; i < all.size(); ++i) {
      order.emplace_back(of_others + least_of_storing(v, all[i]), i);
    }
    std::ranges::sort(order);
    std::optional<size_t> cheapest;
    for (const auto& [least, i] : order) {
      if (least > best || (least == best && (!cheapest || i > *cheapest))) continue;
      tried[v] = all[i];
      const int64_t sum = cost(tried);
      if (sum > best || (sum == best && (!cheapest || i > *cheapest))) continue;
      best = sum;
      cheapest = i;
    }
    if (cheapest) stored[v] = all[*cheapest];
    return cheapest.has_value();
  }

  Assignment assignment(const Stored& stored) {
    std::vector<Steps> steps;
    check(cost(stored, &steps) < impossible,
          "sharding: no moves lead from how parameters are stored to where ops read them; store "
          "them whole, or as a program of this model in training does");
    Assignment how{.nodes = std::vector<Strategy>(stages_.size()), .given = stored};
    size_t state = 0;
    for (NodeId n = prices_.nodes(); n-- > 0;) {
      const Steps& s = steps[static_cast<size_t>(n)];
      const size_t way = allowed(n)[s.way[state]];
      how.nodes[static_cast<size_t>(n)] = prices_.way(n, way);
      state = s.before[state];
      for (const ReadValue& read : prices_.reads(n)) {
        const ValueId v = read.value;
        if (how.given.contains(v)) continue;
        const auto wanted = prices_.wanted(n, read, way);
        if (is_parameter(v)) how.given[v] = best_storage(v, wanted);
        if (prices_.is_written(v)) how.given[v] = wanted.front();
      }
    }
    return how;
  }

  ShardPrices& prices_;
  const ShardProblem& problem_;
  std::vector<NodeId> last_reader_;         // of each value; -1: none
  std::map<ValueId, size_t> readers_ = {};  // of each parameter
  std::vector<WaitingValue> waiting_ = {};
  std::vector<Stage> stages_ = {};
  std::map<std::tuple<size_t, std::vector<size_t>, std::vector<std::pair<int, Sharding>>>, Costs>
      own_ = {};
};

}  // namespace

Assignment cheapest_shards(ShardPrices& prices, const ShardProblem& problem) {
  return Programme(prices, problem).cheapest();
}

}  // namespace spool
