#include "spool/models/formats/llmc_header.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"

namespace spool {
namespace {

constexpr uint64_t max_tokenizer_bytes = 64'000'000;
constexpr const char* llmc_kind = "an llm.c tokenizer";

// The tokens of a file, each of which follows its length.
std::vector<std::string_view> split(std::string_view text, int32_t count, const std::string& file) {
  std::vector<std::string_view> tokens;
  for (int32_t i = 0; i < count; ++i) {
    check_file(!text.empty(), file, "ends before token ", i, " of ", count);
    const size_t length = static_cast<unsigned char>(text[0]);
    check_file(length > 0, file, "token ", i, " has a length of 0");
    check_file(length < text.size(), file, "token ", i, " has ", length, " bytes, and ",
               text.size() - 1, " are left in the file");
    tokens.push_back(text.substr(1, length));
    text.remove_prefix(1 + length);
  }
  check_file(text.empty(), file, "has ", text.size(), " bytes after its last token");
  return tokens;
}

int32_t vocabulary_size(const LlmcHeader& header) {
  constexpr int32_t min = BytePairEncoding::byte_count + 2;
  header.expect(header[0] == llmc_tokenizer_magic, 0, "magic", llmc_tokenizer_magic,
                " is expected");
  header.expect(header[1] == 2, 1, "version", "only 2 can be read");
  header.expect(header[2] >= min && header[2] < (1 << 24), 2, "vocabulary", "it must be at least ",
                min, ": 256 bytes, a merge, and the end of text");
  header.expect(header[3] == header[2] - 1, 3, "end of text", "only the last token, ",
                header[2] - 1, ", can end a text");
  return header[2];
}

}  // namespace

BytePairEncoding read_llmc_tokenizer(const std::filesystem::path& path) {
  const int32_t count = vocabulary_size({File::open(path), llmc_kind});
  const std::string text = read_text_file(path, max_tokenizer_bytes);
  const std::string file = path.string();
  const auto tokens = split(std::string_view(text).substr(LlmcHeader::bytes), count, file);
  std::string bytes;
  std::array<bool, BytePairEncoding::byte_count> seen{};
  for (int32_t i = 0; i < BytePairEncoding::byte_count; ++i) {
    const std::string_view token = tokens.begin()[i];
    bool& known = seen[static_cast<unsigned char>(token[0])];
    check_file(
        token.size() == 1 && !known, file, "token ", i,
        " is not one of the 256 bytes, each of which must come once before all other tokens");
    known = true;
    bytes += token;
  }
  BytePairEncoding encoding(bytes);
  std::vector<int32_t> parts;
  for (int32_t i = encoding.size(); i + 1 < count; ++i) {
    parts.clear();
    encoding.encode(tokens.begin()[i], parts);
    check_file(parts.size() == 2, file, "token ", i, " joins ", parts.size(),
               " earlier tokens, not two: this is not a vocabulary of byte-pair encoding");
    encoding.add_merge({parts[0], parts[1]});
  }
  return encoding;
}

}  // namespace spool
