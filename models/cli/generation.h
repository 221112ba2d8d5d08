#pragma once

// The arguments of `spool generate`, and its ways to write: one text, a conversation, or many texts
// at once.

#include <optional>
#include <string>
#include <vector>

#include "spool/models/data/chats/chat.h"
#include "spool/models/families/model_file.h"
#include "spool/models/inference/sampling.h"
#include "spool/models/steps/step.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/runtime/random.h"

namespace spool {

struct GenerateArguments {
  std::string model, adapter, base, prompt, prompts, device, dtype = "f32";
  TokenizerChoice tokenizer = {};
  int64_t tokens = 200, context = 0, batch = 8, samples = 1;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
  std::vector<std::string> stops;
  std::string chat_format, system;
  uint64_t seed = 1;
  std::string parameters = "device";  // where they live
  int threads = 0;
  bool interactive = false, chat = false, json = false;
  std::string mesh = {};                        // of ranks that share the model; empty: none do
  std::optional<StepShards> shards = {};        // how they share it
  std::shared_ptr<Communicator> own_rank = {};  // where this is one of them
};

// A model, its tokenizer, and how tokens are drawn.
struct Generation {
  const GenerateArguments& arguments;
  const ModelFile& file;
  const Tokenizer& tokenizer;
  std::optional<Chat> chat = {};
  SamplingOptions sampling = {};

  Generation(const GenerateArguments&, const ModelFile&, const Tokenizer&);
  // The tokens of a prompt, or of a conversation that begins with it.
  std::vector<int32_t> tokens_of(const std::string& prompt) const;
  // The tokens of a text; throws if the model lacks one.
  std::vector<int32_t> checked(std::vector<int32_t> tokens) const;
};

// The random numbers of a text, which depend only on these arguments, not on the number of prompts
// or samples.  Sample 0 has those of a prompt without samples.
Random draws_of(uint64_t seed, int64_t prompt, int64_t sample);

// Writes texts one after the other.
void write_texts(const Generation&);
// Writes texts in batches: for prompts from a file or standard input, or samples of one.
void write_batches(const Generation&);
// Whether the prompt and what is added to it fit into the model's context, which batches need.
bool fits_batches(const Generation&);

// Writes to standard output at once.
void print(std::string_view text);
// Prints bytes that a model wrote: as they are, or on a terminal made printable.
void print_generated(std::string_view text);
// Prints a text as a line of JSON, with the number of the sample if there are several.
void print_json(const std::string& prompt, std::optional<int64_t> sample, const std::string& text,
                int64_t tokens, std::string_view ended_by);
// A line between the samples of a prompt.
inline constexpr const char* between_samples = "---";

}  // namespace spool
