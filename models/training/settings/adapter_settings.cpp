// The settings of low-rank adapters, which are trained in place of a model's weights; run.json has
// their values as JSON.

#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/models/training/settings/setting_checks.h"

namespace spool {
namespace {

// A number of the adapters of the run's model.
template <class T>
SettingAccess<T> of_adapters(T LoraConfig::*member) {
  return {[=](const RunOptions& o) { return o.training.model.lora().*member; },
          [=](RunOptions& o, const T& value) {
            LoraConfig lora = o.training.model.lora();
            lora.*member = value;
            o.training.model = o.training.model.adapted(std::move(lora));
          }};
}

// "q_proj,v_proj" as well as both apart; "all" is none.
SettingAccess<std::vector<std::string>> of_targets() {
  auto access = of_adapters(&LoraConfig::targets);
  const auto set = access.set;
  access.set = [=](RunOptions& o, const std::vector<std::string>& texts) {
    std::vector<std::string> names;
    for (const std::string& text : texts) {
      for (size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
        end = std::min(text.find(',', begin), text.size());
        names.push_back(text.substr(begin, end - begin));
      }
    }
    if (names.size() == 1 && names.front() == "all") names.clear();
    set(o, names);
  };
  return access;
}

double twice_the_rank(const RunOptions& o) {
  const LoraConfig& lora = o.training.model.lora();  // of an adapter that is there, or none yet
  return lora.alpha > 0 ? lora.alpha : 2 * static_cast<double>(lora.rank);
}

}  // namespace

namespace settings {

const Settings adapter_table{
    {"lora", of_adapters(&LoraConfig::rank),
     "Rank of low-rank adapters (LoRA), which are trained in place of the weights; by default "
     "there "
     "are none",
     at_least(1, 1 << 16), numbers, in_help},
    {"lora-alpha", of_adapters(&LoraConfig::alpha),
     "What adapters add is scaled by this, divided by the rank; by default twice the rank",
     must<double>("the scale of adapters must be a finite number of 0 or more",
                  [](double a) { return std::isfinite(a) && a >= 0; }),
     numbers, computed(twice_the_rank)},
    {"lora-rs", of_adapters(&LoraConfig::rank_stabilised),
     "Divide {lora-alpha} by the square root of the rank (rank-stabilised LoRA)", any_value,
     numbers, in_help},
    {"lora-dropout", of_adapters(&LoraConfig::dropout),
     "Probability of dropout of what adapters read; by default 0",
     must<float>("the probability of dropout of adapters must be in [0, 1)",
                 [](float p) { return p >= 0 && p < 1; }),
     numbers, in_help},
    {"lora-targets", of_targets(),
     "Linears to adapt, by their names in transformers, whole or behind a dot, such as "
     "q_proj,v_proj; by default all of the blocks",
     any_value, numbers, in_help},
};

}  // namespace settings
}  // namespace spool
