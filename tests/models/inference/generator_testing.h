#pragma once

// The logits that a generator should have, by whole forward passes.

#include <vector>

#include "tests/models/families/gpt2_testing.h"

namespace spool::testing {

constexpr size_t generator_budget = size_t{64} << 20;  // more than any of these models needs

// The logits of the token after a text, by one forward pass over the tokens the generator keeps.
Numbers whole_logits(Gpt2&, const std::vector<int32_t>& text, Stream&);

}  // namespace spool::testing
