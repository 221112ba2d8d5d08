#pragma once

// A GPT-2 that somebody has, in any of the forms it comes in.

#include <filesystem>
#include <memory>
#include <optional>

#include "spool/models/families/gpt2.h"
#include "spool/models/formats/stored_tensors.h"

namespace spool {

// What may name one.
inline constexpr const char* model_forms =
    "the directory of a run (its latest checkpoint), of a checkpoint, or of a model that "
    "transformers "
    "saved; a .safetensors file with its config.json beside it; or a model file of llm.c";

class ModelFile {
 public:
  // Throws where it is none of these.
  explicit ModelFile(const std::filesystem::path& model);

  // Of the weights.
  const std::string& name() const { return tensors_->name(); }
  // Where other files of the model are.
  std::filesystem::path directory() const;
  const Gpt2Config& config() const { return config_; }
  // What the matrices are stored in; f32 where the engine lacks that type.
  DType dtype() const;
  // The token that ends a text, where the model's files say so.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }

  // Sets all parameters of a model of this configuration.  Throws, before any is touched, where
  // tensors are missing, of other shapes, or more than a GPT-2 has.
  void load(Gpt2&) const;
  // Likewise tensors parallel to its parameters, such as masters of another type.
  void load(Gpt2&, const std::vector<Tensor>& parallel) const;

 private:
  std::shared_ptr<const TensorReader> tensors_;
  Gpt2Config config_;
  std::optional<int32_t> end_of_text_;
  bool conv1d_ = true;  // whether some matrices are (in, out), as transformers stores them
};

// Into a directory, as transformers stores it: model.safetensors and config.json.  Where it
// generates text, it stops at the token that ends one.
void save_model(const std::filesystem::path& directory, Gpt2&, std::optional<int32_t> end_of_text);

}  // namespace spool
