#pragma once

// The expected logits of a generator, by full forward passes.

#include <vector>

#include "tests/models/families/gpt2_testing.h"

namespace spool::testing {

constexpr size_t generator_budget = size_t{64} << 20;  // more than any of these models needs

// The logits of the token after a text, by one forward pass over the tokens it keeps.
Numbers whole_logits(Gpt2&, const std::vector<int32_t>& text, Stream&);

}  // namespace spool::testing
