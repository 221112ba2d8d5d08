#include "spool/models/steps/exchange/gradient_sums.h"

#include <nlohmann/json.hpp>

namespace spool {

namespace {
constexpr const char* sums_of_micro_batches = "micro-batches";
}  // namespace

int summed_ranks(const StepConfig& c) {
  const int replicas = c.replicas();
  if (c.accumulate == 1 || c.accumulate == replicas || (replicas > 0 && c.zero >= 2)) return 0;
  return replicas > 0 ? replicas : 1;
}

nlohmann::json sums_to_json(int summed_ranks) {
  if (summed_ranks == 0) return sums_of_micro_batches;
  return {{"ranks", summed_ranks}};
}

int sums_from_json(const JsonField& field) {
  if (field.value() == sums_of_micro_batches) return 0;
  return field.member("ranks").integer<int>(1);
}

}  // namespace spool
