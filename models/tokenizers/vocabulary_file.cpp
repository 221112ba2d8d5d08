// Reads and writes a vocabulary as JSON: vocab.json, each token with its id.

#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/byte_alphabet.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

constexpr uint64_t max_vocabulary_bytes = 64'000'000;

// The id of each token by its spelling; the ids are 0, 1, ..., each once.
std::map<std::string, int32_t> read_ids(const JsonField& vocabulary) {
  const std::vector<JsonField> fields = vocabulary.members();
  std::vector<bool> taken(fields.size());
  std::map<std::string, int32_t> ids;
  for (const JsonField& field : fields) {
    const auto id = field.integer<int32_t>(0, static_cast<int32_t>(fields.size()) - 1);
    std::vector<bool>::reference is_taken = taken.begin()[id];
    field.expect(!is_taken, "id ", id, " is also the id of another token");
    is_taken = true;
    ids.emplace_hint(ids.end(), field.key(), id);
  }
  return ids;
}

}  // namespace

TokenIds read_token_ids(const std::filesystem::path& path, const BytePairEncoding& encoding) {
  const std::string file = path.string();
  std::map<std::string, int32_t> unused =
      read_ids(parse_json(read_text_file(path, max_vocabulary_bytes), file, /*max_depth=*/1));
  TokenIds ids;
  for (int32_t token = 0; token < encoding.size(); ++token) {
    const std::string spelling = ByteAlphabet::instance().spell(encoding.text(token));
    const auto found = unused.find(spelling);
    check_file(found != unused.end(), file, "has no id for ", excerpt(spelling),
               ", a token of the merges beside it");
    ids.of_encoding.push_back(found->second);
    unused.erase(found);
  }
  for (const auto& [text, id] : unused) ids.special[id] = text;
  return ids;
}

void write_tokenizer_files(const std::filesystem::path& directory, const Gpt2Tokenizer& t) {
  const BytePairEncoding& encoding = t.encoding();
  const ByteAlphabet& alphabet = ByteAlphabet::instance();
  std::string merges = "#version: 0.2\n";
  nlohmann::json vocabulary;
  for (int32_t token = 0; token < encoding.size(); ++token) {
    vocabulary[alphabet.spell(encoding.text(token))] = t.id(token);
    if (token < BytePairEncoding::byte_count) continue;
    const auto [left, right] = encoding.merge(token);
    merges +=
        alphabet.spell(encoding.text(left)) + " " + alphabet.spell(encoding.text(right)) + "\n";
  }
  for (const auto& [id, text] : t.special()) vocabulary[text] = id;
  const nlohmann::json config{{"tokenizer_class", "GPT2Tokenizer"}};
  write_text_file_atomically(directory / "merges.txt", merges);
  write_text_file_atomically(directory / "vocab.json", vocabulary.dump());
  write_text_file_atomically(directory / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace spool
