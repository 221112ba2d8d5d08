#pragma once

// Converts model files from one format to another.

#include <filesystem>

#include "spool/models/families/model_file.h"

namespace spool {

struct ConvertOptions {
  DType dtype = DType::f32;              // of the weights: f32 or bf16
  uint64_t shard_bytes = 5'000'000'000;  // larger weights are written as several files
  FileProgress loading = {};
};

// An `out` that ends in .bin is written as llm.c's model file, for a GPT-2; any other name is a
// directory in transformers' format, with the tokenizer's files if the model has some.  Throws if
// `out` exists, or if a weight is or would become infinite or nan; an error leaves no `out`.
void convert_model(const ModelFile& in, const std::filesystem::path& out, const ConvertOptions&);

}  // namespace spool
