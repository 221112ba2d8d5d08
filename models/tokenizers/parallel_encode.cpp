#include "spool/models/tokenizers/parallel_encode.h"

#include <algorithm>
#include <string_view>

#include "spool/runtime/cpu/thread_pool.h"
#include "spool/runtime/cpu/usable_cores.h"

namespace spool {
namespace {

// So large that no word fills a block and that the cost of cutting is negligible.
constexpr size_t block_bytes = size_t{1} << 20;

// Cuts a file into blocks, of which a few are in memory at a time.
class TextBlocks {
 public:
  TextBlocks(const Tokenizer& tokenizer, const InputFile& file, uint64_t begin, size_t at_once)
      : tokenizer_(tokenizer), file_(file), at_once_(at_once), begin_(begin) {}

  // The next blocks, `at_once` of them if there are as many; they live until the next call.
  std::vector<std::string_view> take() {
    const size_t size = std::min<uint64_t>(at_once_ * block_bytes, file_.size() - begin_);
    buffer_.resize(size);
    file_.read(begin_, std::as_writable_bytes(std::span(buffer_)));
    const bool is_end = begin_ + size == file_.size();
    std::string_view text(buffer_.data(), size);
    std::vector<std::string_view> blocks;
    while (blocks.size() < at_once_ && !text.empty()) {
      const bool cuts = text.size() > block_bytes || !is_end;
      const size_t bytes = cuts ? tokenizer_.boundary(text.substr(0, block_bytes)) : text.size();
      blocks.push_back(text.substr(0, bytes));
      text.remove_prefix(bytes);
      begin_ += bytes;
    }
    return blocks;
  }

 private:
  const Tokenizer& tokenizer_;
  const InputFile& file_;
  size_t at_once_;
  uint64_t begin_;  // of the next block
  std::vector<char> buffer_;
};

}  // namespace

void encode_text(const Tokenizer& tokenizer, const InputFile& text, int threads,
                 const std::function<void(std::span<const int32_t>, uint64_t)>& write,
                 uint64_t begin) {
  ThreadPool pool(threads > 0 ? threads : usable_cores());
  struct Round {
    const Tokenizer& tokenizer;
    std::vector<std::string_view> blocks = {};
    std::vector<std::vector<int32_t>> tokens;
    bool is_first = true;
  };
  Round round{.tokenizer = tokenizer, .tokens = {}};
  round.tokens.resize(static_cast<size_t>(pool.threads()) * 2);
  TextBlocks blocks(tokenizer, text, begin, round.tokens.size());
  uint64_t done = 0;
  while (!(round.blocks = blocks.take()).empty()) {
    const auto encode = [](void* context, int64_t piece, int) {
      auto& r = *static_cast<Round*>(context);
      const auto i = static_cast<size_t>(piece);
      r.tokens[i].clear();
      if (i == 0 && r.is_first) {
        r.tokenizer.encode(r.blocks[i], r.tokens[i]);
      } else {
        r.tokenizer.encode_rest(r.blocks[i], r.tokens[i]);
      }
    };
    pool.run(static_cast<int64_t>(round.blocks.size()), encode, &round);
    for (size_t i = 0; i < round.blocks.size(); ++i) {
      done += round.blocks[i].size();
      write(round.tokens[i], done);
    }
    round.is_first = false;
  }
}

void encode_document(const Tokenizer& tokenizer, const InputFile& text, int threads,
                     const std::function<void(std::span<const int32_t>, uint64_t)>& write,
                     uint64_t begin, int64_t rows) {
  bool is_begun = false;
  const auto write_text = [&](std::span<const int32_t> tokens, uint64_t done) {
    if (!is_begun) write(begin_of_text_before(tokenizer, tokens, rows), 0);
    is_begun = true;
    write(tokens, done);
  };
  encode_text(tokenizer, text, threads, write_text, begin);
  write(tokens_within(tokenizer.after_text(), rows), text.size() - begin);
}

}  // namespace spool
