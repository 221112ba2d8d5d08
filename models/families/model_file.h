// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// A stored GPT-2, in any form a user may have.

#include <filesystem>
#include <memory>
#include <optional>

#include "spool/models/families/gpt2.h"
#include "spool/models/formats/safetensors.h"

namespace spool {

// The paths that name a model.
inline constexpr const char* model_forms =
    "the directory of a run (its latest checkpoint), of a checkpoint, or of a model that "
    "transformers saved; a .safetensors file with its config.json beside it; or a model file of "
    "llm.c";

class ModelFile {
 public:
  // Throws if the path is none of model_forms.
  explicit ModelFile(const std::filesystem::path& model);

  // The file with the weights.
  const std::string& name() const { return tensors_->name(); }
  // Its directory, where other files of the model are.
  std::filesystem::path directory() const;
  const Gpt2Config& config() const { return config_; }
  // The type of the stored matrices; f32 if the engine lacks that type.
  DType dtype() const;
  // The token that ends a text, if the model's files name one.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }

  // The tensors, whatever their format.
  const TensorReader& tensors() const { return *tensors_; }

  // Sets all parameters of a model of this configuration.  Throws, before any is changed, if a
  // tensor is missing, surplus, or of another shape.
  void load(Gpt2&, const FileProgress& = {}) const;
  // The same for tensors parallel to its parameters, such as masters of another type.
  void load(Gpt2&, const std::vector<Tensor>& parallel, const FileProgress& = {}) const;

 private:
  std::shared_ptr<const TensorReader> tensors_;
  Gpt2Config config_;
  std::optional<int32_t> end_of_text_;
  bool conv1d_ = true;  // see StoredAs
};

// Writes model.safetensors and config.json into a directory, as transformers does.  transformers
// stops generating at `end_of_text`.  The metadata of model.safetensors says, as transformers
// demands, how it is written, and what is given here.
void save_model(const std::filesystem::path& directory, Gpt2&, std::optional<int32_t> end_of_text,
                Metadata = {});

}  // namespace spool
