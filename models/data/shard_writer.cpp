#include "spool/models/data/shard_writer.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <optional>

#include "spool/models/data/token_files.h"
#include "spool/models/tokenizers/parallel_encode.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

struct OpenShard {
  AtomicWrite partial;
  File file;
  ShardWriter writer;
  OpenShard(const fs::path& path, int64_t vocabulary)
      : partial(path), file(File::create(partial.path())), writer(file, vocabulary) {}
};

// Writes tokens to one shard after another.
class ShardSequence {
 public:
  ShardSequence(const TokenizeOptions& options, int64_t vocabulary, size_t text_bytes)
      : options_(options),
        vocabulary_(vocabulary),
        text_bytes_(text_bytes),
        max_(options.shard_tokens > 0 ? options.shard_tokens : ShardWriter::max_tokens) {
    // A pattern that matches the new shards would also match old ones.
    if (options.shard_tokens == 0) return;
    check_file(!path_exists(name()), name(), "exists already; remove it and the shards after it");
  }
  // Removes finished shards after an error: part of the text is of no use.
  ~ShardSequence() {
    std::error_code ignored;
    for (const fs::path& path : done_) fs::remove(path, ignored);
  }

  void append(std::span<const int32_t> tokens) {
    while (!tokens.empty()) {
      if (!shard_) shard_.emplace(name(), vocabulary_);
      ShardWriter& writer = shard_->writer;
      const auto room = static_cast<size_t>(max_ - writer.size());
      const auto some = tokens.first(std::min(room, tokens.size()));
      writer.append(some);
      tokens = tokens.subspan(some.size());
      if (writer.size() < max_) continue;
      check_setting(options_.shard_tokens > 0 || tokens.empty(), {"shard-tokens"},
                    options_.out.string(), ": the text has more than the ", max_,
                    " tokens of one shard; choose a size of shards, for example 100000000 tokens");
      finish();
    }
  }

  // Reports progress; also after every shard, as each takes a while.
  void tell(size_t done) {
    done_bytes_ = done;
    if (options_.progress) options_.progress(done_bytes_, text_bytes_);
  }

  std::vector<fs::path> take() {
    if (shard_) finish();
    return std::move(done_);
  }

 private:
  fs::path name() const {
    if (options_.shard_tokens == 0) return options_.out;
    const fs::path& out = options_.out;
    return out.parent_path() /
           fmt::format("{}_{:06}{}", out.stem().string(), done_.size(), out.extension().string());
  }

  void finish() {
    shard_->writer.finish();
    shard_->file.sync();
    shard_->partial.commit();
    shard_.reset();
    done_.push_back(name());
    tell(done_bytes_);
  }

  const TokenizeOptions& options_;
  int64_t vocabulary_;
  size_t text_bytes_, done_bytes_ = 0;
  int64_t max_;
  std::optional<OpenShard> shard_;
  std::vector<fs::path> done_;
};

}  // namespace

TokenizeResult tokenize(const Tokenizer& tokenizer, std::span<const fs::path> texts,
                        const TokenizeOptions& options) {
  check_setting(options.shard_tokens >= 0 && options.shard_tokens <= ShardWriter::max_tokens,
                {"shard-tokens"}, "the tokens of a shard must be between 1 and ",
                ShardWriter::max_tokens, ", not ", options.shard_tokens);
  const bool before_each = options.separation == Separation::before_each;
  check_setting(!before_each || tokenizer.end_of_text().has_value(), {"separate"},
                "files cannot be separated: the tokenizer ", tokenizer.name(),
                " has no token that ends a text");
  size_t total = 0;
  for (const fs::path& path : texts) {
    total += TextFile(path, options.format).size();
    std::error_code absent;
    check_file_setting(!fs::equivalent(path, options.out, absent), path, {"out"},
                       "cannot be read and written at once; choose another file to write");
  }
  check_are_text(texts, options.format);
  check(total > 0, "the text to tokenize is empty");
  TokenizeResult result;
  ShardSequence shards(options, tokenizer.vocabulary(), total);
  const bool between = options.separation == Separation::between;
  DocumentWriter documents(between ? tokenizer.end_of_text() : std::nullopt,
                           [&](std::span<const int32_t> tokens) {
                             shards.append(tokens);
                             result.tokens += static_cast<int64_t>(tokens.size());
                           });
  for (const fs::path& path : texts) {
    const TextFile text(path, options.format);
    documents.begin_document();
    if (before_each) documents.append(std::vector<int32_t>{*tokenizer.end_of_text()});
    const auto write = [&](std::span<const int32_t> tokens, uint64_t done) {
      documents.append(tokens);
      shards.tell(result.bytes + done);
    };
    encode_text(tokenizer, text.file, options.threads, write, text.begin);
    result.bytes += text.size();
  }
  result.shards = shards.take();
  return result;
}

void detokenize(const Tokenizer& tokenizer, std::span<const fs::path> shards,
                const std::function<void(std::string_view)>& write) {
  constexpr int64_t block = 1 << 16;
  const Tokens tokens = open_shards(shards, tokenizer.vocabulary());
  std::vector<int32_t> some;
  for (int64_t begin = 0; begin < tokens->size(); begin += block) {
    some.resize(static_cast<size_t>(std::min(block, tokens->size() - begin)));
    tokens->read(begin, some);
    write(begin == 0 ? tokenizer.decode(some) : tokenizer.decode_rest(some));
  }
}

}  // namespace spool
