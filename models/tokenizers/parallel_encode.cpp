#include "spool/models/tokenizers/parallel_encode.h"

#include <algorithm>
#include <thread>

#include "spool/runtime/cpu/thread_pool.h"

namespace spool {
namespace {

// Large enough that no word fills a block and that the cost of cutting is negligible.
constexpr size_t block_bytes = size_t{1} << 20;

// Removes up to `count` blocks from the front of the text.
std::vector<std::string_view> take_blocks(const Tokenizer& tokenizer, std::string_view& text,
                                          size_t count) {
  std::vector<std::string_view> blocks;
  while (blocks.size() < count && !text.empty()) {
    const size_t size =
        text.size() > block_bytes ? tokenizer.boundary(text.substr(0, block_bytes)) : text.size();
    blocks.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return blocks;
}

}  // namespace

void encode_text(const Tokenizer& tokenizer, std::string_view text, int threads,
                 const std::function<void(std::span<const int32_t>, size_t)>& write) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(threads > 0 ? threads : cores);
  struct Round {
    const Tokenizer& tokenizer;
    std::vector<std::string_view> blocks = {};
    std::vector<std::vector<int32_t>> tokens;
  };
  Round round{.tokenizer = tokenizer, .tokens = {}};
  round.tokens.resize(static_cast<size_t>(pool.threads()) * 2);
  size_t done = 0;
  while (!text.empty()) {
    round.blocks = take_blocks(tokenizer, text, round.tokens.size());
    const auto encode = [](void* context, int64_t piece, int) {
      auto& r = *static_cast<Round*>(context);
      const auto i = static_cast<size_t>(piece);
      r.tokens[i].clear();
      r.tokenizer.encode(r.blocks[i], r.tokens[i]);
    };
    pool.run(static_cast<int64_t>(round.blocks.size()), encode, &round);
    for (size_t i = 0; i < round.blocks.size(); ++i) {
      done += round.blocks[i].size();
      write(round.tokens[i], done);
    }
  }
}

}  // namespace spool
