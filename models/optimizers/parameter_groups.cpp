#include "spool/models/optimizers/parameter_groups.h"

#include <algorithm>
#include <cmath>

#include "spool/runtime/check.h"

namespace spool {
namespace {

bool is_rate(double x) { return std::isfinite(x) && x >= 0; }

void check_groups(const std::vector<ParameterGroup>& groups, const char* who) {
  for (size_t i = 0; i < groups.size(); ++i) {
    const ParameterGroup& group = groups[i];
    check(bool(group.has), who, ": group ", i + 1, " of parameters does not say which it has; ",
          "set its function `has`");
    check(is_rate(group.rate), who, ": group ", i + 1, " of parameters has a rate of ", group.rate,
          "; a rate is a finite number from 0 on, times the learning rate");
    check(is_rate(group.decay.value_or(0)), who, ": group ", i + 1,
          " of parameters has a decay of ", group.decay.value_or(0),
          "; a decay is a finite number from 0 on");
  }
}

}  // namespace

std::vector<ParameterRate> rates_of(const std::vector<Parameter*>& parameters,
                                    const std::vector<ParameterGroup>& groups, double decay,
                                    const char* who) {
  check(is_rate(decay), who, ": the weight decay must be a finite number from 0 on, not ", decay);
  check_groups(groups, who);
  std::vector<ParameterRate> rates;
  std::vector<bool> used(groups.size());
  for (const Parameter* p : parameters) {
    ParameterRate rate{.decay = p->whole().shape.rank() > 1 ? float(decay) : 0.0f};
    const auto group = std::ranges::find_if(groups, [&](const auto& g) { return g.has(*p); });
    if (group != groups.end()) {
      used[static_cast<size_t>(group - groups.begin())] = true;
      rate.rate = float(group->rate);
      if (group->decay) rate.decay = float(*group->decay);
    }
    rates.push_back(rate);
  }
  const auto unused = std::ranges::find(used, false);
  check(unused == used.end(), who, ": no parameter is in group ", unused - used.begin() + 1,
        "; a parameter is in the first group whose `has` is true for it, and a group that may be ",
        "empty is to be left out");
  return rates;
}

}  // namespace spool
