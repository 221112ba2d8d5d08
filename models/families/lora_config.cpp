#include "spool/models/families/lora_config.h"

#include <spdlog/fmt/fmt.h>

namespace spool {

std::string in_words(const LoraConfig& lora) {
  return fmt::format(
      "rank {}, scale {:g}, of {}", lora.rank, lora.scale(),
      lora.targets.empty() ? "all linears" : fmt::format("{}", fmt::join(lora.targets, ", ")));
}

}  // namespace spool
