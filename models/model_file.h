#pragma once

// A GPT-2 that somebody has, in any of the forms it comes in.

#include <filesystem>
#include <memory>

#include "spool/models/gpt2.h"
#include "spool/models/stored_tensors.h"

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

  // Sets all parameters of a model of this configuration.  Throws, before any is touched, where
  // tensors are missing, of other shapes, or more than a GPT-2 has.
  void load(Gpt2&) const;
  // Likewise tensors parallel to its parameters, such as masters of another type.
  void load(Gpt2&, const std::vector<Tensor>& parallel) const;

 private:
  std::shared_ptr<const TensorReader> tensors_;
  Gpt2Config config_;
  bool conv1d_ = true;  // whether some matrices are (in, out), as transformers stores them
};

// Into a directory, as transformers stores it: model.safetensors and config.json.
void save_model(const std::filesystem::path& directory, Gpt2&);

}  // namespace spool
