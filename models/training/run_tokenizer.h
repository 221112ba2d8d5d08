// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// The tokenizer of a training run, and what of the run depends on it.

#include <filesystem>
#include <memory>
#include <optional>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run_options.h"

namespace spool {

// Opens the tokenizer that the options choose, or that of the checkpoint, if the run resumes from
// one, or of the weights that it starts from; completes the choice, and the vocabulary of a model
// with random weights.  Throws if such a model has fewer tokens than the tokenizer.
std::unique_ptr<Tokenizer> open_run_tokenizer(
    RunOptions&, const std::optional<std::filesystem::path>& checkpoint = {});

// The text samples of a run with this tokenizer, of a model with so many tokens.
SampleLength sample_length(const Tokenizer&, int64_t rows);

}  // namespace spool
