#pragma once

// A stored model of any family and format, with its config.json.

#include <concepts>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "spool/models/families/adapter_file.h"
#include "spool/models/families/model.h"
#include "spool/models/formats/safetensors.h"

namespace spool {

// The paths that name a model.
inline constexpr const char* model_forms =
    "the directory of a run (its latest checkpoint), of a checkpoint, of a model that transformers "
    "saved, as the hub has it, or of an adapter that PEFT saved; a .safetensors file with its "
    "config.json beside it; or a model file of llm.c";

// A model, and low-rank adapters that change it (adapter_file.h).
struct ModelPaths {
  std::filesystem::path model;         // one of model_forms
  std::filesystem::path adapter = {};  // the folder of an adapter of it; empty: none
  // Of the model that is adapted, if `model` is an adapter's folder; empty: where that says.
  std::filesystem::path base = {};

  template <class Path>
  requires std::convertible_to<Path, std::filesystem::path> ModelPaths(
      const Path& m, std::filesystem::path adapter_ = {}, std::filesystem::path base_ = {})
      : model(m), adapter(std::move(adapter_)), base(std::move(base_)) {}
};

// The folder of the adapter, if there is one.  Throws if both paths name one, or a base is given
// for a model.
std::optional<std::filesystem::path> adapter_of(const ModelPaths&);

// A model's configuration, read without its weights; the path is one of model_forms, or that of a
// config.json.
struct ModelDescription {
  ModelConfig config;               // with the adapters
  std::filesystem::path directory;  // where its other files are, such as its tokenizer
};
ModelDescription describe_model(const ModelPaths&);

class ModelFile {
 public:
  // Throws if the model's path is none of model_forms, or its adapter does not fit.
  explicit ModelFile(const ModelPaths&);

  // The file with the weights.
  const std::string& name() const { return tensors_->name(); }
  // Where other files of the model are, such as its tokenizer: the weights' folder, or that of an
  // adapter which has them all.
  const std::filesystem::path& directory() const { return directory_; }
  // Of the weights; see adapter().
  const ModelConfig& config() const { return config_; }
  // The path of the weights' model, of which an adapter is an adapter.
  const std::filesystem::path& base() const { return base_; }
  // What changes the weights; null: nothing.
  const AdapterFile* adapter() const { return adapter_.get(); }
  // The type of the stored matrices; f32 if the engine lacks that type.
  DType dtype() const;
  // The tokens that end a text, if the model's files name any: generation_config.json, or else
  // config.json.
  const std::vector<int32_t>& stop_tokens() const { return stop_tokens_; }

  // Throws if a weight, or a number of its adapter, is not finite.
  void check_finite() const;

  // The tensors, whatever their format.
  const TensorReader& tensors() const { return *tensors_; }

  // Sets all parameters of a model of this configuration.  An adapter becomes part of the weights
  // of a model without adapters, which costs no memory, and sets those of one that has them.
  // Throws, before any is changed, if a tensor is missing, surplus, or of another shape.
  void load(Model&, const FileProgress& = {}) const;
  // The same for tensors parallel to its parameters, such as masters of another type.
  void load(Model&, const std::vector<TensorContents>& parallel, const FileProgress& = {}) const;

 private:
  void read_weights(const std::filesystem::path& file);

  std::shared_ptr<const TensorReader> tensors_;
  std::shared_ptr<const AdapterFile> adapter_;
  std::filesystem::path base_, directory_;
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
