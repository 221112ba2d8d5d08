#pragma once

// Models from one form to another.

#include <filesystem>

#include "spool/models/families/model_file.h"

namespace spool {

// FILE.bin becomes a model file of llm.c; any other name a directory as transformers has them, with
// the tokenizer's files if the model has some.  f32 or bf16.  Throws where there is something of
// that name; what failed leaves nothing.
void convert_model(const ModelFile& in, const std::filesystem::path& out, DType);

}  // namespace spool
