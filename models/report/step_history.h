#pragma once

// The steps of a run as far as a page draws them: all, or so many evenly spread.  It is JSON in a
// report.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace spool {

// Of a run; the numbers of a page are exact up to it.
inline constexpr int64_t max_steps = int64_t{1} << 53;

// What is not known of a step is not there.
struct StepEntry {
  int64_t step = 0;                     // steps done
  std::optional<double> loss = {};      // nats a token
  std::optional<double> val_loss = {};  // of an evaluation after it
  std::optional<double> ms = {}, tokens_per_s = {};
  std::optional<int64_t> tokens = {};  // that the run has trained on
  bool operator==(const StepEntry&) const = default;
};

class StepHistory {
 public:
  explicit StepHistory(size_t max = 2000);  // 4 at least

  // Steps rise; one of the same step adds what it knows.  Of more than `most` every second one is
  // forgotten, then every second of those and so on; evaluations are, too, beyond half of `most`.
  void add(const StepEntry&);
  // With the first and the last step.
  std::vector<StepEntry> entries() const;

 private:
  struct Kept {
    StepEntry entry;
    int64_t evaluation = -1;  // its number; -1: there was none
  };
  bool stays(const Kept&) const;
  void thin();

  size_t max_;
  int64_t every_ = 1, every_evaluation_ = 1, evaluations_ = 0;
  std::vector<Kept> kept_;  // the last one may be one that is forgotten next
};

// [{"step": 10, "loss": 3.2, "val_loss": null, "ms": ..., "tokens_per_s": ..., "tokens": ...}, ...]
nlohmann::json to_json(const std::vector<StepEntry>&);
// Those of such a list; what is none is left out.
std::vector<StepEntry> step_entries(const nlohmann::json&);

}  // namespace spool
