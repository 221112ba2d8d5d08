#pragma once

// Low-rank adapters in a folder, as PEFT stores them: adapter_config.json, and, as F32, in
// adapter_model.safetensors base_model.model.LINEAR.lora_A.weight (r, in) and .lora_B.weight
// (out, r).  The model that they change, their base, is elsewhere.

#include <filesystem>
#include <string>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/formats/safetensors.h"

namespace spool {

inline constexpr const char *adapter_config_name = "adapter_config.json",
                            *adapter_weights_name = "adapter_model.safetensors";

// Whether the folder has an adapter and no weights of a model.
bool has_adapter(const std::filesystem::path& folder);

class AdapterFile {
 public:
  // Throws, naming the field, if it asks for what Spool lacks.
  explicit AdapterFile(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const LoraConfig& lora() const { return lora_; }
  // The base, as the folder names it: a path, or a name of the hub; may be empty.
  const std::string& base() const { return base_; }
  const TensorReader& tensors() const { return tensors_; }

  // Sets the adapters of a model that has them, given the tensors that stored() names.  Throws,
  // before any is changed, if one is missing, surplus or of another shape.
  void load(const std::vector<NamedTensor>& adapters, const FileProgress& = {}) const;

  // Makes what is read into these tensors of a model without adapters, named as it stores them, the
  // sum of that and the adapters' products, formed in f32 and rounded once.
  void merge_into(std::vector<NamedTensor>& tensors, const ModelConfig&) const;

 private:
  std::filesystem::path folder_;
  LoraConfig lora_;
  std::string base_;
  SafetensorsReader tensors_;
};

// Writes a model's adapters into a folder.  `exact` is parallel to its parameters: their masters,
// if there are any.
void save_adapter(const std::filesystem::path& folder, Model&,
                  const std::vector<TensorContents>& exact, const std::filesystem::path& base,
                  const Metadata& = {});

}  // namespace spool
