// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// What a model's authors say in generation_config.json, which is JSON, about drawing tokens.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace spool {

// Absent where nothing is said.  As in transformers, all but the penalty count only if do_sample is
// true.
struct GenerationConfig {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};

// Of a model's folder.  Throws if the file is there and a field is wrong.
GenerationConfig read_generation_config(const std::filesystem::path& directory);

}  // namespace spool
