#include "spool/models/gpt2_tokenizer.h"

#include "spool/models/file.h"
#include "spool/models/llmc.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

// A piece that is longer would take memory without limit; the text of no language has one.
constexpr size_t longest_text = size_t{1} << 20;

}  // namespace

void Gpt2Tokenizer::encode(std::string_view text, std::vector<int32_t>& tokens) const {
  while (!text.empty()) {
    const size_t size =
        text.size() > longest_text ? boundary(text.substr(0, longest_text)) : text.size();
    Gpt2Pieces::Walk walk(pieces_, text.substr(0, size));
    for (std::string_view piece; !(piece = walk.next()).empty();) encoding_.encode(piece, tokens);
    text.remove_prefix(size);
  }
}

std::string Gpt2Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    check(0 <= token && token < vocabulary(), "the gpt2 tokenizer: token ", token,
          " is not in its vocabulary, 0 to ", vocabulary() - 1);
    text += token == encoding_.size() ? end_of_text_text : encoding_.text(token);
  }
  return text;
}

std::unique_ptr<Gpt2Tokenizer> read_gpt2_tokenizer(const std::filesystem::path& path) {
  const bool binary = has_llmc_magic(File::open(path), llmc_tokenizer_magic);
  return std::make_unique<Gpt2Tokenizer>(binary ? read_llmc_tokenizer(path) : read_merges(path));
}

}  // namespace spool
