#pragma once

// What a model's authors say in generation_config.json, which is JSON, about drawing tokens.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace spool {

class JsonField;

// Absent where nothing is said.  As in transformers, all but the penalty count only if do_sample is
// true.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;                     // 0: all
  std::optional<std::vector<int32_t>> stop_tokens;  // each ends a text
};

// Of a model's folder.  Throws if the file is there and a field is wrong.
GenerationConfig read_generation_config(const std::filesystem::path& directory);

// The field eos_token_id of this or of a model's configuration: a number, a list of some, or null,
// which is none of them; nothing where there is no such field.
std::optional<std::vector<int32_t>> stop_tokens_in(const JsonField& config);

}  // namespace spool
