#pragma once

// A stored model of any family and format, with its config.json.

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "spool/models/families/model.h"
#include "spool/models/formats/safetensors.h"

namespace spool {

// The paths that name a model.
inline constexpr const char* model_forms =
    "the directory of a run (its latest checkpoint), of a checkpoint, or of a model that "
    "transformers saved, as the hub has it; a .safetensors file with its config.json beside it; or "
    "a model file of llm.c";

// A model's configuration, read without its weights; the path is one of model_forms, or that of a
// config.json.
struct ModelDescription {
  ModelConfig config;
  std::filesystem::path directory;  // where its files are
};
ModelDescription describe_model(const std::filesystem::path& model);

class ModelFile {
 public:
  // Throws if the path is none of model_forms.
  explicit ModelFile(const std::filesystem::path& model);

  // The file with the weights.
  const std::string& name() const { return tensors_->name(); }
  // Its directory, where other files of the model are.
  std::filesystem::path directory() const;
  const ModelConfig& config() const { return config_; }
  // The type of the stored matrices; f32 if the engine lacks that type.
  DType dtype() const;
  // The tokens that end a text, if the model's files name any: generation_config.json, or else
  // config.json.
  const std::vector<int32_t>& stop_tokens() const { return stop_tokens_; }

  // The tensors, whatever their format.
  const TensorReader& tensors() const { return *tensors_; }

  // Sets all parameters of a model of this configuration.  Throws, before any is changed, if a
  // tensor is missing, surplus, or of another shape.
  void load(Model&, const FileProgress& = {}) const;
  // The same for tensors parallel to its parameters, such as masters of another type.
  void load(Model&, const std::vector<TensorContents>& parallel, const FileProgress& = {}) const;

 private:
  std::shared_ptr<const TensorReader> tensors_;
  ModelConfig config_;
  std::vector<int32_t> stop_tokens_;
  bool conv1d_ = true;  // see StoredAs
};

struct SaveModelOptions {
  std::optional<int32_t> end_of_text = {};  // where transformers stops generating
  // Metadata of model.safetensors, beside what transformers demands.
  Metadata metadata = {};
  uint64_t shard_bytes = UINT64_MAX;  // see save_model_tensors()
};

// Writes weights and config.json into a directory, as transformers does.  A config.json that was
// read is written again, with the type of these weights.
void save_model(const std::filesystem::path& directory, Model&, const SaveModelOptions& = {});

// Copies the other files of a transformers model, as far as they exist: generation_config.json and
// the chat template.  Weights, configuration and tokenizer are not copied.
void copy_side_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace spool
