#pragma once

// Reads and writes llm.c's model files: header 256 x int32 [20240326, 3 (f32) or 5 (bf16), context,
// V, layers, heads, C, Vp], then 16 tensors.  A tensor of the layers has all layers end to end;
// matrices are (out, in); the token embedding is padded to Vp rows.  As in other formats, callers
// see one tensor per layer, under transformers' name, without padding.

#include <filesystem>

#include "spool/models/families/gpt2_config.h"
#include "spool/models/formats/stored_tensors.h"

namespace spool {

class LlmcModelReader : public TensorReader {
 public:
  explicit LlmcModelReader(const std::filesystem::path&);

  const Gpt2Config& config() const { return config_; }

 private:
  struct Parsed;
  explicit LlmcModelReader(Parsed);

  Gpt2Config config_;
};

class LlmcModelWriter : public TensorWriter {
 public:
  // f32 or bf16.  Throws if llm.c has no such model.
  LlmcModelWriter(const std::filesystem::path&, const Gpt2Config&, DType);
};

}  // namespace spool
