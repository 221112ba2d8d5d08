#pragma once

// Two small GPT-2 models, random texts, and full forward passes to compare with.

#include <vector>

#include "spool/models/families/gpt2.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

// A model with a short context, so that it is soon full.
constexpr Gpt2Config short_context{.layers = 2,
                                   .heads = 2,
                                   .channels = 24,
                                   .context = 24,
                                   .vocabulary = 50,
                                   .epsilon = 0.1,
                                   .gelu = GeluForm::exact};
// A model with a context of several tiles of attention and several passes of a generator.
constexpr Gpt2Config long_context{
    .layers = 2, .heads = 3, .channels = 48, .context = 300, .vocabulary = 70};

// Initialises a model with weights large enough for logits that differ.
void initialise_with_large_weights(Gpt2&);

// Random tokens below 50.
std::vector<int32_t> some_text(int64_t count, uint64_t seed = 1);

// The largest difference expected of two forward passes in this type.
double forward_tolerance(DType);

// The hidden states of tokens (B, T), by one forward pass without a cache.
Tensor whole_hidden(Gpt2&, const Tensor& tokens);

}  // namespace spool::testing
