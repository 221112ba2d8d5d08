#pragma once

// The states of the dynamic programme of cheapest_shards.h, and a step over one node.

#include <cstdint>
#include <limits>
#include <vector>

#include "spool/autograd/program.h"
#include "spool/autograd/sharding/sharding.h"

namespace spool {

using Costs = std::vector<int64_t>;
// Several of these may be added.
inline constexpr int64_t impossible_cost = std::numeric_limits<int64_t>::max() / 64;

// A value that is still to be read, and the shardings in which its op may make it.
struct WaitingValue {
  ValueId value = -1;
  std::vector<Sharding> as = {};
};

// A node as the programme steps over it.  A state is a number with a digit for each value that
// waits, the last of them innermost.
struct Stage {
  const std::vector<size_t>* allowed = nullptr;  // ways
  size_t states = 1, outputs = 1;                // after it, and of what it makes
  std::vector<uint32_t> read = {}, kept = {};  // by state before: of what it reads, and of the rest
  std::vector<uint32_t> made = {};             // by way
  Costs reading = {};                          // by what it reads and way
  Costs own = {};                              // by way
};

// The way, and the state before, that lead to each state.
struct Steps {
  std::vector<uint32_t> way = {}, before = {};
};

// The least cost of each state after the node, from those before it; and how, if that is asked for.
Costs after(const Stage&, const Costs& own, const Costs& before, Steps*);

// Numbers of some digits of a state.
class Digits {
 public:
  explicit Digits(const std::vector<WaitingValue>& waiting) : waiting_(waiting) {
    for (const WaitingValue& w : waiting) states_ *= w.as.size();
  }
  size_t states() const { return states_; }
  // By state, the number that these digits make.
  std::vector<uint32_t> numbers(const std::vector<size_t>& which) const {
    std::vector<uint32_t> all(states_, 0);
    for (const size_t d : which) {
      size_t stride = 1;
      for (size_t inner = d + 1; inner < waiting_.size(); ++inner) {
        stride *= waiting_[inner].as.size();
      }
      const size_t count = waiting_[d].as.size();
      for (size_t s = 0; s < states_; ++s) {
        all[s] = static_cast<uint32_t>(all[s] * count + s / stride % count);
      }
    }
    return all;
  }

 private:
  const std::vector<WaitingValue>& waiting_;
  size_t states_ = 1;
};

}  // namespace spool
