#pragma once

// Encodes text files on several threads, in an amount of memory that does not grow with the text.

#include <functional>
#include <span>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/runtime/files/input_file.h"

namespace spool {

// Calls write() with the tokens of each part of the text, in order, and the bytes encoded so far.
// The text begins at byte `begin` of the file.  The parts do not depend on the number of threads
// (0: one per usable core).
void encode_text(const Tokenizer&, const InputFile& text, int threads,
                 const std::function<void(std::span<const int32_t> tokens, uint64_t done)>& write,
                 uint64_t begin = 0);

// The same, with the tokens that a model with `rows` tokens expects before and after a text.
void encode_document(const Tokenizer&, const InputFile& text, int threads,
                     const std::function<void(std::span<const int32_t> tokens, uint64_t done)>&,
                     uint64_t begin = 0, int64_t rows = INT32_MAX);

}  // namespace spool
