#include "spool/models/optimizers/optimizer_choice.h"

namespace spool {

std::unique_ptr<Optimizer> make_optimizer(std::vector<Parameter*> parameters,
                                          const OptimizerSettings& settings, Stream& stream,
                                          const OptimizerMemory& memory) {
  return std::visit(
      [&](const auto& s) {
        return std::make_unique<Optimizer>(make_rule(s), std::move(parameters), update_settings(s),
                                           stream, memory);
      },
      settings);
}

}  // namespace spool
