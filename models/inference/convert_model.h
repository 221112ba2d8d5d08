// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Converts model files from one format to another.

#include <filesystem>

#include "spool/models/families/model_file.h"

namespace spool {

// Writes the model with weights of f32 or bf16.  An `out` that ends in .bin is a model file of
// llm.c; any other name is a directory in the format of transformers, with the tokenizer's files if
// the model has some.  Throws if `out` exists; an error leaves nothing there.
void convert_model(const ModelFile& in, const std::filesystem::path& out, DType,
                   const FileProgress& loading = {});

}  // namespace spool
