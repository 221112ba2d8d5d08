#include "spool/planner/report/home_words.h"

#include <algorithm>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// "parameters and gradients of 30 of 32 units"
std::string what_is_away(const HomeCounts& c) {
  const std::string units = sentence(" of ", c.units, c.units == 1 ? " unit" : " units");
  if (c.parameters == c.gradients) {
    return sentence("parameters and gradients of ", c.parameters, units);
  }
  if (c.gradients == 0) return sentence("parameters of ", c.parameters, units);
  if (c.parameters == 0) return sentence("gradients of ", c.gradients, units);
  return sentence("parameters of ", c.parameters, " and gradients of ", c.gradients, units);
}

}  // namespace

HomeCounts count_homes(const Plan& plan) {
  const auto count = [&](bool PlannedUnit::*is_away) {
    return static_cast<size_t>(std::ranges::count(plan.units, true, is_away));
  };
  return {.units = plan.units.size(),
          .parameters = count(&PlannedUnit::parameters_away),
          .gradients = count(&PlannedUnit::gradients_away)};
}

std::string homes_in_words(const Plan& plan) {
  const bool in_backward = plan.update == UpdateTime::backward;
  if (!has_homes(plan)) return in_backward ? "parameters updated in backward" : "";
  return what_is_away(count_homes(plan)) + " on the host" +
         (in_backward ? ", updated in backward" : "");
}

std::string homes_sentence(const Plan& plan) {
  const bool in_backward = plan.update == UpdateTime::backward;
  const char* const update =
      "each parameter is updated as soon as its gradient is final, so that no gradients pile up";
  if (!has_homes(plan)) return in_backward ? sentence("In backward ", update, ".") : "";
  std::string words = what_is_away(count_homes(plan));
  words.front() = static_cast<char>(words.front() - 'a' + 'A');
  words += " live on the host; what a unit needs is copied to the device before its nodes run";
  if (in_backward) return sentence(words, ", and in backward ", update, ".");
  const bool sends = count_homes(plan).gradients > 0;
  return words + (sends ? ", and its gradients leave as soon as they are final." : ".");
}

}  // namespace spool
