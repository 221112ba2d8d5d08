#pragma once

// Reads generation_config.json, in which a model's authors say how to draw its tokens.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace spool {

class JsonField;

// Settings that the file lacks are absent.  As in transformers, all but the penalty apply only if
// do_sample is true.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;                     // 0: all
  std::optional<std::vector<int32_t>> stop_tokens;  // each ends a text
};

// Reads the file of a model's folder; empty if there is none.  Throws if a field is wrong.
GenerationConfig read_generation_config(const std::filesystem::path& directory);

// The field eos_token_id of this file or of config.json: a number, a list of numbers, or null,
// which is no token; nothing if there is no such field.
std::optional<std::vector<int32_t>> stop_tokens_in(const JsonField& config);

}  // namespace spool
