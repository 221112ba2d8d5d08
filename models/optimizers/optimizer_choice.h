// Public: one of the headers of docs/public-headers.md.
#pragma once

// Creates the optimizer that its settings choose:
// make_optimizer(parameters, SgdSettings{.momentum = 0.9}, stream).

#include <memory>
#include <variant>
#include <vector>

#include "spool/models/optimizers/adamw.h"
#include "spool/models/optimizers/sgd.h"

namespace spool {

using OptimizerSettings = std::variant<AdamWSettings, SgdSettings>;

std::unique_ptr<Optimizer> make_optimizer(std::vector<Parameter*>, const OptimizerSettings&,
                                          Stream&, const OptimizerMemory& = {});

// Where the state of these parameters would be; see optimizer.h.
inline OptimizerState place_of_state(const std::vector<Parameter*>& parameters,
                                     const OptimizerSettings& settings,
                                     const OptimizerMemory& memory) {
  return std::visit(
      [&](const auto& s) { return place_of_state(parameters, *make_rule(s), s.rounding, memory); },
      settings);
}

}  // namespace spool
