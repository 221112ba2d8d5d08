#include <algorithm>
#include <unordered_map>

#include "spool/models/tokenizers/byte_alphabet.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

constexpr uint64_t max_merges_bytes = 64'000'000;

// Builds an encoding from the lines of a merges.txt.
class MergesParser {
 public:
  explicit MergesParser(const std::string& file)
      : file_(file), encoding_(ByteAlphabet::instance().order()) {
    for (int32_t i = 0; i < encoding_.size(); ++i) tokens_[std::string(encoding_.text(i))] = i;
  }

  void add_line(std::string_view text) {
    ++line_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.empty() || (line_ == 1 && text.starts_with("#version"))) return;
    const size_t space = text.find(' ');
    expect(space != text.npos && text.find(' ', space + 1) == text.npos,
           "is not two tokens with a space between them");
    const TokenPair pair{token(text.substr(0, space)), token(text.substr(space + 1))};
    std::string joined(encoding_.text(pair.left));
    joined += encoding_.text(pair.right);
    const bool is_new = tokens_.try_emplace(std::move(joined), encoding_.size()).second;
    expect(is_new, "makes a token that an earlier line makes");
    encoding_.add_merge(pair);
  }

  BytePairEncoding take() { return std::move(encoding_); }

 private:
  template <class... Parts>
  void expect(bool ok, const Parts&... parts) const {
    check_file(ok, file_, "line ", line_, " ", parts...);
  }

  int32_t token(std::string_view spelling) const {
    const auto bytes = ByteAlphabet::instance().read(spelling);
    expect(bytes && !bytes->empty(),
           "has a character outside GPT-2's byte alphabet; is this a merges.txt?");
    const auto found = tokens_.find(*bytes);
    expect(found != tokens_.end(), "joins a token that no earlier line makes");
    return found->second;
  }

  const std::string& file_;
  size_t line_ = 0;
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
    parser.add_line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  BytePairEncoding encoding = parser.take();
  check_file(encoding.size() > BytePairEncoding::byte_count, file, "has no merges");
  return encoding;
}

}  // namespace spool
