#include "spool/models/optimizers/optimizer_choice.h"

namespace spool {
namespace {

std::unique_ptr<Optimizer> make(std::vector<Parameter*> parameters, const AdamWSettings& settings,
                                Stream& stream, const OptimizerMemory& memory) {
  return std::make_unique<AdamWOptimizer>(std::move(parameters), settings, stream, memory);
}

std::unique_ptr<Optimizer> make(std::vector<Parameter*> parameters, const SgdSettings& settings,
                                Stream& stream, const OptimizerMemory& memory) {
  return std::make_unique<SgdOptimizer>(std::move(parameters), settings, stream, memory);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(std::vector<Parameter*> parameters,
                                          const OptimizerSettings& settings, Stream& stream,
                                          const OptimizerMemory& memory) {
  return std::visit([&](const auto& s) { return make(std::move(parameters), s, stream, memory); },
                    settings);
}

}  // namespace spool
