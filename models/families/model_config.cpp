#include "spool/models/families/model_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/model.h"

namespace spool {

void check_extents(std::initializer_list<Extent> all) {
  for (const auto& [setting, words, value, max] : all) {
    check_setting(value > 0 && value <= max, {setting}, "the ", words, " is ", value,
                  ", and must be between 1 and ", max);
  }
}

void check_number_of_parameters(int64_t layers, int64_t of_layer) {
  constexpr int64_t max = int64_t{1} << 53;
  check_setting(layers <= max / of_layer, {"layers", "channels"}, layers, " layers of ", of_layer,
                " parameters are more than the ", max, " that a model can have");
}

ModelConfig::ModelConfig() : ModelConfig(Gpt2Config{}) {}

nlohmann::json ModelConfig::to_json() const {
  if (source_) return *source_;
  nlohmann::json fields;
  held_->write(fields);
  return fields;
}

ModelConfig ModelConfig::as_read(nlohmann::json source) const {
  ModelConfig same = *this;
  same.source_ = std::make_shared<const nlohmann::json>(std::move(source));
  return same;
}

ModelConfig ModelConfig::adapted(LoraConfig lora) const {
  ModelConfig same = *this;
  same.lora_ = std::move(lora);
  return same;
}

std::shared_ptr<Model> ModelConfig::make(DType dtype, Stream& stream, int64_t longest_row) const {
  validate();
  const int64_t context = shape().context;
  const int64_t longest = longest_row == 0 ? context : std::min(longest_row, context);
  auto model = held_->make(dtype, stream, longest, lora_);
  model->config_ = *this;
  model->check_targets();
  return model;
}

}  // namespace spool
