// The settings of low-rank adapters, which are trained in place of a model's weights; run.json has
// their values as JSON.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "spool/models/families/model.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/runtime/meta/stream.h"

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
  const LoraConfig& lora = o.training.model.lora();
  const bool is_new = o.given.contains("lora");  // else of an adapter that is there, or none
  return is_new ? 2 * static_cast<double>(lora.rank) : lora.alpha;
}

// A new adapter of a larger rank than a matrix would have more numbers than that.
void check_rank(const ModelConfig& config) {
  MetaStream nothing{Machine{}};
  constexpr int64_t one_token = 1;
  const int64_t rank = config.lora().rank;
  const auto model = config.make(DType::f32, nothing, one_token);
  for (const Model::Adapted& adapted : model->adapters()) {
    const int64_t in = adapted.weight->whole().shape[1];
    for (const StoredRows& linear : adapted.linears) {
      const int64_t max = std::min(in, linear.rows.size());
      check_setting(rank <= max, {"lora"}, "adapters of rank ", rank, " do not fit ", linear.name,
                    ", a matrix of ", linear.rows.size(), " by ", in, "; ", max, " is the most");
    }
  }
}

}  // namespace

void check_given_adapters(const RunOptions& o) {
  const auto is_given = [&](const char* key) { return o.given.contains(key); };
  const bool has_adapter = has_weights(o.model) && adapter_of(paths_of(o));
  check_setting(has_weights(o.model) || o.adapter.empty(), {"adapter", "model"},
                "{adapter} changes the weights of a model, and ", o.model,
                " has none; name the model that it was trained on");
  for (const char* key : {"lora", "lora-alpha", "lora-rs", "lora-targets"}) {
    check_setting(!has_adapter || !is_given(key), {key, "adapter"}, "{", key, "} is of a new ",
                  "adapter, and the model has one, which is trained further as it is; leave one of "
                  "the two out, or convert both to a model first");
  }
  if (is_given("lora") && !o.resume) check_rank(o.training.model);
  for (const char* key : {"lora-alpha", "lora-rs", "lora-targets", "lora-dropout"}) {
    check_setting(o.training.model.lora() || o.resume || !is_given(key), {key, "lora"}, "{", key,
                  "} is of adapters, and there are none; give {lora}, too");
  }
}

namespace settings {

const Settings adapter_table{
    {"lora", of_adapters(&LoraConfig::rank),
     "Rank of low-rank adapters (LoRA), which are trained in place of the weights; by default "
     "there "
     "are none",
     at_least(1, 1 << 16), numbers, in_help},
    {"lora-alpha", of_adapters(&LoraConfig::alpha),
     "What adapters add is scaled by this, divided by the rank; by default twice the rank",
     must<double>(sentence("the scale of adapters must be within ", max_lora_alpha, " of 0"),
                  [](double a) { return std::abs(a) <= max_lora_alpha; }),
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
