#include "spool/models/inference/stop_tokens.h"

#include "spool/models/families/generation_config.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

std::vector<int32_t> stop_tokens_of(const std::filesystem::path& directory,
                                    const Tokenizer& tokenizer) {
  const auto named = read_generation_config(directory).stop_tokens;
  if (named) return *named;
  const std::filesystem::path config = directory / "config.json";
  if (path_exists(config)) {
    const auto tokens = stop_tokens_in(read_json(config));
    if (tokens && !tokens->empty()) return *tokens;
  }
  const auto end = tokenizer.end_of_text();
  return end ? std::vector{*end} : std::vector<int32_t>{};
}

std::optional<int32_t> first_stop_token(const std::filesystem::path& directory,
                                        const Tokenizer& tokenizer, int64_t rows) {
  if (directory.empty()) return end_of_text_within(tokenizer, rows);
  const auto stops = tokens_within(stop_tokens_of(directory, tokenizer), rows);
  return stops.empty() ? std::nullopt : std::optional(stops.front());
}

}  // namespace spool
