#pragma once

// Text of any size to tokens on several threads, in memory that does not grow with it.

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

// Calls write() with the tokens of the text, in order and by parts, the same whatever the number of
// threads (0: one per core), and after each part with the bytes done so far.
void encode_text(const Tokenizer&, std::string_view text, int threads,
                 const std::function<void(std::span<const int32_t> tokens, size_t done)>& write);

}  // namespace spool
