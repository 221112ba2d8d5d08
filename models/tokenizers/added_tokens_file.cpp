// Converts merges.txt, vocab.json and added_tokens.json to a tokenizer.json, with each token's id.

#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/byte_alphabet.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/models/tokenizers/tokenizer_json_steps.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

json model_of(const BytePairEncoding& encoding, const TokenIds& ids) {
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  json vocabulary = json::object(), merges = json::array();
  for (int32_t token = 0; token < encoding.size(); ++token) {
    vocabulary[alphabet.spell(encoding.text(token))] = ids.of_encoding.begin()[token];
    if (token < BytePairEncoding::byte_count) continue;
    const auto [left, right] = encoding.merge(token);
    merges.push_back({alphabet.spell(encoding.text(left)), alphabet.spell(encoding.text(right))});
  }
  for (const auto& [id, text] : ids.special) vocabulary[text] = id;
  return {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}};
}

json added_token(const std::string& text, int64_t id, bool special) {
  return {{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Adds what tokenizer_config.json says of an added token, by its id.
void add_flags(const fs::path& directory, json& token) {
  const fs::path file = directory / "tokenizer_config.json";
  if (!path_exists(file)) return;
  const JsonField config = read_json(file);
  const auto known = config.present("added_tokens_decoder");
  const auto flags =
      known ? known->find(std::to_string(token["id"].get<int64_t>()).c_str()) : std::nullopt;
  if (!flags || flags->member("content").string() != token["content"]) return;
  for (const char* key : {"single_word", "lstrip", "rstrip", "special"}) {
    token[key] = flags->flag(key, /*absent=*/false);
  }
}

}  // namespace

std::unique_ptr<JsonTokenizer> read_added_tokens(const fs::path& path) {
  const fs::path directory = path.parent_path();
  const BytePairEncoding encoding = read_merges(directory / "merges.txt");
  const TokenIds ids = read_token_ids(directory / "vocab.json", encoding);
  json added = json::array();
  for (const auto& [id, text] : ids.special) added.push_back(added_token(text, id, true));
  for (const JsonField& token : read_json(path).members()) {
    const auto id = token.integer<int64_t>(0, INT32_MAX);
    const auto known = ids.special.find(static_cast<int32_t>(id));
    if (known != ids.special.end() && known->second == token.key()) continue;
    added.push_back(added_token(token.key(), id, false));
    add_flags(directory, added.back());
  }
  const json bytes{{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", true}};
  const json whole{{"version", "1.0"},      {"added_tokens", added},
                   {"normalizer", nullptr}, {"pre_tokenizer", bytes},
                   {"decoder", bytes},      {"model", model_of(encoding, ids)}};
  return parse_tokenizer_json(whole.dump(), path);
}

}  // namespace spool
