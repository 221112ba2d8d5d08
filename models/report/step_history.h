#pragma once

// The steps of a run that a page draws: all, or a limited number, evenly spread.  In a report they
// are JSON.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace spool {

// The limit of a run; JSON numbers are exact up to here.
inline constexpr int64_t max_steps = int64_t{1} << 53;

// Numbers of a step that are not known are absent.
struct StepEntry {
  int64_t step = 0;                     // steps done
  std::optional<double> loss = {};      // nats a token
  std::optional<double> val_loss = {};  // of an evaluation after it
  std::optional<double> ms = {}, tokens_per_s = {};
  std::optional<int64_t> tokens = {};  // trained on so far
  bool operator==(const StepEntry&) const = default;
};

class StepHistory {
 public:
  explicit StepHistory(size_t max = 2000);  // 4 at least

  // Steps must rise; a second entry of a step adds to it.  Beyond `max` entries every second one is
  // dropped, then every second of the rest, ...; evaluations, too, beyond half of `max`.
  void add(const StepEntry&);
  // Includes the first and the last step.
  std::vector<StepEntry> entries() const;

 private:
  struct Kept {
    StepEntry entry;
    int64_t evaluation = -1;  // its number; -1: none
  };
  bool stays(const Kept&) const;
  void thin();

  size_t max_;
  int64_t every_ = 1, every_evaluation_ = 1, evaluations_ = 0;
  std::vector<Kept> kept_;  // the last one may be dropped next
};

// [{"step": 10, "loss": 3.2, "val_loss": null, "ms": ..., "tokens_per_s": ..., "tokens": ...}, ...]
nlohmann::json to_json(const std::vector<StepEntry>&);
// Reads such a list; skips what is not an entry.
std::vector<StepEntry> step_entries(const nlohmann::json&);

}  // namespace spool
