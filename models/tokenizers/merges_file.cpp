#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

constexpr uint64_t max_merges_bytes = 64'000'000;

// Bytes as merges.txt and vocab.json spell them: a byte that is visible in Latin-1 as itself, the
// others, in order, as the characters from 256 on; in UTF-8.
class Alphabet {
 public:
  Alphabet() {
    unsigned next = 256;
    std::string others;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool visible = (33 <= byte && byte <= 126) || (161 <= byte && byte != 173);
      spelling_[byte] = utf8(visible ? byte : next++);
      (visible ? order_ : others).push_back(static_cast<char>(byte));
      byte_of_[spelling_[byte]] = static_cast<char>(byte);
    }
    order_ += others;
  }

  // The bytes as tokens 0 to 255 stand for them.
  const std::string& order() const { return order_; }

  std::string spell(std::string_view bytes) const {
    std::string text;
    for (const char byte : bytes) text += spelling_[static_cast<unsigned char>(byte)];
    return text;
  }

  // Nothing if it has a character that is not in the alphabet.
  std::optional<std::string> read(std::string_view spelt) const {
    std::string bytes;
    while (!spelt.empty()) {
      const size_t size = static_cast<signed char>(spelt[0]) < 0 ? 2 : 1;
      const auto found = byte_of_.find(std::string(spelt.substr(0, size)));
      if (found == byte_of_.end()) return {};
      bytes.push_back(found->second);
      spelt.remove_prefix(size);
    }
    return bytes;
  }

 private:
  static std::string utf8(unsigned character) {
    if (character < 128) return {static_cast<char>(character)};
    return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 63))};
  }

  std::string spelling_[256], order_;
  std::unordered_map<std::string, char> byte_of_;
};

const Alphabet& alphabet() {
  static const Alphabet one;
  return one;
}

// Builds an encoding from its lines.
class MergesParser {
 public:
  explicit MergesParser(const std::string& file) : file_(file), encoding_(alphabet().order()) {
    for (int32_t i = 0; i < encoding_.size(); ++i) tokens_[std::string(encoding_.text(i))] = i;
  }

  void line(std::string_view text) {
    ++number_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || (number_ == 1 && text.starts_with("#version"))) return;
    const size_t blank = text.find(' ');
    expect(blank != text.npos && text.find(' ', blank + 1) == text.npos,
           "is not two tokens with a blank between them");
    const TokenPair pair{token(text.substr(0, blank)), token(text.substr(blank + 1))};
    std::string joined(encoding_.text(pair.left));
    joined += encoding_.text(pair.right);
    const bool fresh = tokens_.try_emplace(std::move(joined), encoding_.size()).second;
    expect(fresh, "makes a token that was there before");
    encoding_.add_merge(pair);
  }

  BytePairEncoding take() { return std::move(encoding_); }

 private:
  template <class... Parts>
  void expect(bool ok, const Parts&... parts) const {
    check_file(ok, file_, "line ", number_, " ", parts...);
  }

  int32_t token(std::string_view spelt) const {
    const auto bytes = alphabet().read(spelt);
    expect(bytes && !bytes->empty(),
           "has a character that is not of GPT-2's alphabet; is this a merges.txt?");
    const auto found = tokens_.find(*bytes);
    expect(found != tokens_.end(), "joins a token that no line before it makes");
    return found->second;
  }

  const std::string& file_;
  size_t number_ = 0;
  BytePairEncoding encoding_;
  std::unordered_map<std::string, int32_t> tokens_;
};

}  // namespace

BytePairEncoding read_merges(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, max_merges_bytes);
  const std::string file = path.string();
  MergesParser parser(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    parser.line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  BytePairEncoding encoding = parser.take();
  check_file(encoding.size() > BytePairEncoding::byte_count, file, "has no merges");
  return encoding;
}

TokenIds read_token_ids(const std::filesystem::path& path, const BytePairEncoding& encoding) {
  const std::string file = path.string();
  const nlohmann::json json =
      parse_json(read_text_file(path, max_merges_bytes), file, /*max_depth=*/1);
  check_file(json.is_object(), file, "is not a JSON object of tokens and their ids");
  const auto size = static_cast<int64_t>(json.size());
  std::vector<bool> taken(json.size());
  std::map<std::string, int32_t> by_text;
  for (const auto& [text, id] : json.items()) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < json.size();
    check_file(fits && !taken[id.get<size_t>()], file, "token ", excerpt(text), " has the id ",
               excerpt(id), "; ids must be 0 to ", size - 1, ", each once");
    taken[id.get<size_t>()] = true;
    by_text[text] = id.get<int32_t>();
  }
  TokenIds ids;
  for (int32_t token = 0; token < encoding.size(); ++token) {
    const std::string spelt = alphabet().spell(encoding.text(token));
    const auto found = by_text.find(spelt);
    check_file(found != by_text.end(), file, "has no id for ", excerpt(spelt),
               ", which the merges beside it make");
    ids.of_encoding.push_back(found->second);
    by_text.erase(found);
  }
  for (const auto& [text, id] : by_text) ids.special[id] = text;
  return ids;
}

void write_tokenizer_files(const std::filesystem::path& directory, const Gpt2Tokenizer& t) {
  const BytePairEncoding& encoding = t.encoding();
  std::string merges = "#version: 0.2\n";
  nlohmann::json vocabulary;
  for (int32_t token = 0; token < encoding.size(); ++token) {
    vocabulary[alphabet().spell(encoding.text(token))] = t.id(token);
    if (token < BytePairEncoding::byte_count) continue;
    const auto [left, right] = encoding.merge(token);
    merges +=
        alphabet().spell(encoding.text(left)) + " " + alphabet().spell(encoding.text(right)) + "\n";
  }
  for (const auto& [id, text] : t.special()) vocabulary[text] = id;
  const nlohmann::json config{{"tokenizer_class", "GPT2Tokenizer"}};
  write_text_file_atomically(directory / "merges.txt", merges);
  write_text_file_atomically(directory / "vocab.json", vocabulary.dump());
  write_text_file_atomically(directory / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace spool
