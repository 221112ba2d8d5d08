#pragma once

// The tokenizer of a training run, and what of the run depends on it.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/models/training/planned_run.h"
#include "spool/models/training/run/data.h"

namespace spool {

// Opens the tokenizer that the options choose, or that of the checkpoint, if the run resumes from
// one, or of the weights that it starts from; completes the choice, and the vocabulary of a model
// with random weights.  Throws if such a model has fewer tokens than the tokenizer.
std::unique_ptr<Tokenizer> open_run_tokenizer(
    RunOptions&, const std::optional<std::filesystem::path>& checkpoint = {});

// The folder with the other files of the run's model or of its tokenizer, such as the template of
// chats: its checkpoint, or that of the weights; empty: there is none.
std::filesystem::path directory_of_run(const RunOptions&,
                                       const std::optional<std::filesystem::path>& checkpoint = {});

// The text samples of a run: an answer to a message if it trains a model of chats, whose template
// is a known one, and else a text that starts from nothing.
struct RunSample {
  std::vector<int32_t> prompt = {};
  std::string message = {};               // in the prompt; empty: there is none
  std::vector<int32_t> stop_tokens = {};  // each ends a sample, which may then take less memory
  SampleLength length = {};
};

// Takes a prompt of the data in place of the sample's own.
void take_prompt(RunSample&, const std::optional<Prompt>&);

// The sample of the weights that the run starts from, or else of its checkpoint.
RunSample sample_of(const RunOptions&, const Tokenizer&,
                    const std::optional<std::filesystem::path>& checkpoint = {});

}  // namespace spool
