#include "spool/models/tokenizers/gpt2_tokenizer.h"

#include "spool/models/formats/llmc_header.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

// Maximum number of bytes that are encoded at a time, to bound the memory for one huge piece, which
// natural text does not have.
constexpr size_t max_bytes_at_once = size_t{1} << 20;

}  // namespace

Gpt2Tokenizer::Gpt2Tokenizer(BytePairEncoding encoding)
    : Gpt2Tokenizer(std::move(encoding), TokenIds{.of_encoding = {}, .special = {}}) {
  end_of_text_ = encoding_.size();
  texts_.emplace_back(end_of_text_text);
  special_[*end_of_text_] = end_of_text_text;
}

Gpt2Tokenizer::Gpt2Tokenizer(BytePairEncoding encoding, const TokenIds& ids)
    : encoding_(std::move(encoding)), ids_(ids.of_encoding), special_(ids.special) {
  const auto own = static_cast<size_t>(encoding_.size());
  check(ids_.empty() || ids_.size() == own, "gpt2 tokenizer: ", ids_.size(), " ids for ", own,
        " tokens of the encoding");
  texts_.resize(own + special_.size());
  const auto place = [&](int32_t id, std::string_view text) {
    check(0 <= id && id < vocabulary() && texts_.begin()[id].empty(), "gpt2 tokenizer: id ", id,
          " is used twice, or not below ", vocabulary());
    texts_.begin()[id] = text;
  };
  for (int32_t token = 0; token < encoding_.size(); ++token)
    place(id(token), encoding_.text(token));
  for (const auto& [special, text] : special_) {
    place(special, text);
    if (text == end_of_text_text) end_of_text_ = special;
  }
}

int32_t Gpt2Tokenizer::id(int32_t token) const {
  return ids_.empty() ? token : ids_.begin()[token];
}

bool Gpt2Tokenizer::operator==(const Gpt2Tokenizer& other) const {
  if (texts_ != other.texts_ || encoding_.size() != other.encoding_.size()) return false;
  for (int32_t token = BytePairEncoding::byte_count; token < encoding_.size(); ++token) {
    const TokenPair ours = encoding_.merge(token), theirs = other.encoding_.merge(token);
    if (ours.left != theirs.left || ours.right != theirs.right) return false;
  }
  return true;
}

void Gpt2Tokenizer::encode(std::string_view text, std::vector<int32_t>& tokens) const {
  const size_t before = tokens.size();
  while (!text.empty()) {
    const size_t size =
        text.size() > max_bytes_at_once ? boundary(text.substr(0, max_bytes_at_once)) : text.size();
    Gpt2Pieces::Walk walk(pieces_, text.substr(0, size));
    for (std::string_view piece; !(piece = walk.next()).empty();) encoding_.encode(piece, tokens);
    text.remove_prefix(size);
  }
  if (ids_.empty()) return;
  for (size_t i = before; i < tokens.size(); ++i) tokens[i] = id(tokens[i]);
}

std::string Gpt2Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    check(0 <= token && token < vocabulary(), "the gpt2 tokenizer: token ", token,
          " is not in its vocabulary, 0 to ", vocabulary() - 1);
    text += texts_.begin()[token];
  }
  return text;
}

std::unique_ptr<Gpt2Tokenizer> read_gpt2_tokenizer(const std::filesystem::path& path) {
  if (has_llmc_magic(File::open(path), llmc_tokenizer_magic)) {
    return std::make_unique<Gpt2Tokenizer>(read_llmc_tokenizer(path));
  }
  BytePairEncoding encoding = read_merges(path);
  const std::filesystem::path ids = path.parent_path() / "vocab.json";
  if (!path_exists(ids)) return std::make_unique<Gpt2Tokenizer>(std::move(encoding));
  const TokenIds read = read_token_ids(ids, encoding);
  return std::make_unique<Gpt2Tokenizer>(std::move(encoding), read);
}

}  // namespace spool
