#pragma once

// What the parts of an op exchange where they run one after another: all parts are run again, until
// each was given what the others gave.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "spool/autograd/notation/part_of_op.h"

namespace spool::op_checks {

class RepeatedExchange final : public PartExchange {
 public:
  explicit RepeatedExchange(size_t parts) : parts_(parts) {}

  void begin_round() {
    check(++rounds_ <= max_rounds, "the parts of an op exchange other numbers in each of ",
          max_rounds, " runs; what it gives must follow from its inputs");
    has_changed_ = false;
  }
  void begin_part(size_t part) { part_ = part, call_ = 0; }
  // Whether a part gave something that the others were not given in this round.
  bool has_changed() const { return has_changed_; }

  void all_gather(char, const View& own, const View& all, Stream& stream) override {
    check(all.nbytes() == parts_ * own.nbytes(), "all_gather: ", parts_, " parts of ", own.spec(),
          " do not make up ", all.spec());
    stream.synchronize();
    if (call_ == given_.size()) given_.emplace_back(parts_);
    std::vector<Bytes>& given = given_[call_++];
    Bytes mine(own.data(), own.data() + own.nbytes());
    if (given[part_] != mine) {
      given[part_] = mine;
      has_changed_ = true;
    }
    std::byte* to = all.data();
    for (const Bytes& bytes : given) {
      to = std::ranges::copy(bytes.size() == mine.size() ? bytes : mine, to).out;
    }
  }

 private:
  using Bytes = std::vector<std::byte>;
  static constexpr int max_rounds = 8;

  size_t parts_, part_ = 0, call_ = 0;
  int rounds_ = 0;
  bool has_changed_ = false;
  std::vector<std::vector<Bytes>> given_ = {};  // by call, by part
};

}  // namespace spool::op_checks
