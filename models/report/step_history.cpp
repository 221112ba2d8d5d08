#include "spool/models/report/step_history.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace spool {
namespace {

using nlohmann::json;

constexpr int64_t max_tokens = std::numeric_limits<int64_t>::max();

template <class T>
void take(std::optional<T>& to, const std::optional<T>& from) {
  if (from) to = from;
}

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

std::optional<double> number(const json& entry, const char* key) {
  const auto at = entry.find(key);
  if (at == entry.end() || !at->is_number()) return {};
  const auto value = at->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> whole_number(const json& entry, const char* key, int64_t max) {
  const auto at = entry.find(key);
  if (at == entry.end() || !at->is_number_integer()) return {};
  const auto value = at->get<int64_t>();  // numbers beyond it become negative
  return 0 <= value && value <= max ? std::optional(value) : std::nullopt;
}

}  // namespace

StepHistory::StepHistory(size_t max) : max_(std::max<size_t>(max, 4)) {}

bool StepHistory::stays(const Kept& k) const {
  if (k.evaluation >= 0) return k.evaluation % every_evaluation_ == 0;
  return k.entry.step % every_ == 0;
}

void StepHistory::thin() {
  const auto is_evaluation = [](const Kept& k) { return k.evaluation >= 0; };
  const auto evaluations = static_cast<size_t>(std::ranges::count_if(kept_, is_evaluation));
  (evaluations > max_ / 2 ? every_evaluation_ : every_) *= 2;
  std::erase_if(kept_, [&](const Kept& k) { return &k != &kept_.front() && !stays(k); });
}

void StepHistory::add(const StepEntry& entry) {
  if (kept_.empty() || kept_.back().entry.step != entry.step) {
    if (kept_.size() > 1 && !stays(kept_.back())) kept_.pop_back();
    while (kept_.size() >= max_) thin();
    kept_.push_back({entry});
  }
  Kept& last = kept_.back();
  take(last.entry.loss, entry.loss);
  take(last.entry.val_loss, entry.val_loss);
  take(last.entry.ms, entry.ms);
  take(last.entry.tokens_per_s, entry.tokens_per_s);
  take(last.entry.tokens, entry.tokens);
  if (last.entry.val_loss && last.evaluation < 0) last.evaluation = evaluations_++;
}

std::vector<StepEntry> StepHistory::entries() const {
  std::vector<StepEntry> all;
  for (const Kept& k : kept_) all.push_back(k.entry);
  return all;
}

json to_json(const std::vector<StepEntry>& entries) {
  json all = json::array();
  for (const StepEntry& e : entries) {
    all.push_back({{"step", e.step},
                   {"loss", or_null(e.loss)},
                   {"val_loss", or_null(e.val_loss)},
                   {"ms", or_null(e.ms)},
                   {"tokens_per_s", or_null(e.tokens_per_s)},
                   {"tokens", or_null(e.tokens)}});
  }
  return all;
}

std::vector<StepEntry> step_entries(const json& list) {
  std::vector<StepEntry> all;
  if (!list.is_array()) return all;
  for (const json& entry : list) {
    const auto step = entry.is_object() ? whole_number(entry, "step", max_steps) : std::nullopt;
    if (!step) continue;
    all.push_back({.step = *step,
                   .loss = number(entry, "loss"),
                   .val_loss = number(entry, "val_loss"),
                   .ms = number(entry, "ms"),
                   .tokens_per_s = number(entry, "tokens_per_s"),
                   .tokens = whole_number(entry, "tokens", max_tokens)});
  }
  return all;
}

}  // namespace spool
