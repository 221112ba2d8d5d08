#include "spool/models/data/token_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "spool/models/formats/llmc_header.h"
#include "spool/runtime/files/input_file.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

struct TokenLayout {
  uint64_t header = 0;  // bytes
  size_t width = 1;     // bytes of a token
};

TokenLayout shard_layout(const File& file) {
  const LlmcHeader header(file, "a shard of tokens");
  const bool wide = header[0] == llmc_llama_tokens_magic;
  header.expect(wide || header[0] == llmc_tokens_magic, 0, "magic", llmc_tokens_magic,
                " (uint16 tokens) or ", llmc_llama_tokens_magic, " (uint32) is expected");
  const int32_t version = wide ? 7 : 1;
  header.expect(header[1] == version, 1, "version", "only ", version, " can be read");
  header.expect(header[2] > 0, 2, "tokens", "there must be at least one");
  const TokenLayout layout{.header = LlmcHeader::bytes, .width = wide ? 4u : 2u};
  const uint64_t expected = layout.header + layout.width * static_cast<uint64_t>(header[2]);
  check_file(file.size() == expected, file.name(), "is ", file.size(), " bytes long, and its ",
             header[2], " tokens require ", expected);
  return layout;
}

// One file of a sequence.
class TokenFile {
 public:
  TokenFile(InputFile file, const TokenLayout& layout, int64_t vocabulary)
      : file_(std::move(file)), layout_(layout), vocabulary_(vocabulary) {
    check_file(size() > 0, name(), "is empty");
  }

  const std::string& name() const { return file_.name(); }
  bool has_changed() const { return file_.has_changed(); }
  int64_t size() const {
    return static_cast<int64_t>((file_.size() - layout_.header) / layout_.width);
  }

  // Reads the bytes into the end of `out`, then widens them from its beginning on.
  void read(int64_t begin, std::span<int32_t> out) const {
    const auto bytes = std::as_writable_bytes(out).last(out.size() * layout_.width);
    file_.read(layout_.header + static_cast<uint64_t>(begin) * layout_.width, bytes);
    const uint32_t largest = layout_.width == 1   ? widen<uint8_t>(bytes, out)
                             : layout_.width == 2 ? widen<uint16_t>(bytes, out)
                                                  : widen<uint32_t>(bytes, out);
    if (largest < vocabulary_) return;
    const auto at = std::ranges::find(out, static_cast<int32_t>(largest)) - out.begin();
    check_file_setting(/*ok=*/false, name(), {"merges", "vocab"}, "token ", begin + at, " is ",
                       largest, ", which is not in the vocabulary, 0 to ", vocabulary_ - 1,
                       "; tokens of another tokenizer need its vocabulary, or its size");
  }

 private:
  // Returns the largest token.
  template <class T>
  static uint32_t widen(std::span<const std::byte> from, std::span<int32_t> out) {
    T largest = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      T token;
      std::memcpy(&token, &from[i * sizeof(T)], sizeof(T));
      out[i] = static_cast<int32_t>(token);
      largest = std::max(largest, token);
    }
    return largest;
  }

  InputFile file_;
  TokenLayout layout_;
  int64_t vocabulary_;
};

using TokenFiles = std::vector<std::unique_ptr<const TokenFile>>;

std::unique_ptr<const TokenFile> open_file(File file, const std::string& name, int64_t vocabulary) {
  const TokenLayout layout = shard_layout(file);
  return std::make_unique<const TokenFile>(InputFile(std::move(file), name), layout, vocabulary);
}

class FileSequence : public TokenSource {
 public:
  explicit FileSequence(TokenFiles files) : files_(std::move(files)) {
    check(!files_.empty(), "no data files were given");
    for (const auto& file : files_) ends_.push_back(size() + file->size());
  }

  std::string name() const override {
    const size_t others = files_.size() - 1;
    const std::string& first = files_[0]->name();
    return others ? sentence(first, " and ", others, " more") : first;
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::vector<std::string> changed_files() const override {
    std::vector<std::string> changed;
    for (const auto& file : files_) {
      if (file->has_changed()) changed.push_back(file->name());
    }
    return changed;
  }

  void read(int64_t begin, std::span<int32_t> out) const override {
    const auto count = static_cast<int64_t>(out.size());
    check(0 <= begin && count <= size() && begin <= size() - count, name(), ": tokens ", begin,
          " to ", begin + count, " do not exist: there are ", size());
    auto at = static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
    while (!out.empty()) {
      const TokenFile& file = *files_[at];
      const int64_t within = begin - (ends_[at] - file.size());
      const auto taken =
          static_cast<size_t>(std::min(file.size() - within, static_cast<int64_t>(out.size())));
      file.read(within, out.first(taken));
      out = out.subspan(taken);
      begin = ends_[at++];
    }
  }

 private:
  TokenFiles files_;
  std::vector<int64_t> ends_;  // of each file, in the sequence
};

// Files stay open, so that those that are replaced or removed can still be read.
void allow_open_files(size_t count) {
  constexpr ::rlim_t others = 64;
  ::rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  check(limit.rlim_max >= count + others, "the data has ", count, " files, and a program may have ",
        limit.rlim_max, " open; join them into fewer");
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Tokens open_texts(std::span<const fs::path> files, DataFormat format, int64_t vocabulary) {
  allow_open_files(files.size());
  TokenFiles opened;
  for (const fs::path& path : files) {
    TextFile text(path, format);
    const TokenLayout layout{.header = text.begin, .width = 1};
    opened.push_back(std::make_unique<const TokenFile>(std::move(text.file), layout, vocabulary));
  }
  return std::make_shared<FileSequence>(std::move(opened));
}

Tokens open_shards(std::span<const fs::path> files, int64_t vocabulary) {
  allow_open_files(files.size());
  TokenFiles opened;
  for (const fs::path& path : files)
    opened.push_back(open_file(File::open(path), path.string(), vocabulary));
  return std::make_shared<FileSequence>(std::move(opened));
}

Tokens open_shard(File file, const std::string& name, int64_t vocabulary) {
  TokenFiles opened;
  opened.push_back(open_file(std::move(file), name, vocabulary));
  return std::make_shared<FileSequence>(std::move(opened));
}

ShardWriter::ShardWriter(File& file, int64_t vocabulary) : file_(file), vocabulary_(vocabulary) {}

void ShardWriter::append(std::span<const int32_t> tokens) {
  check_file(static_cast<int64_t>(tokens.size()) <= max_tokens - count_, file_.name(),
             "would have more than the ", max_tokens, " tokens that a shard can have");
  for (const int32_t token : tokens) {
    check(0 <= token && token < vocabulary_, file_.name(), ": token ", token,
          " is not in the vocabulary, 0 to ", vocabulary_ - 1);
  }
  narrow_.clear();
  if (!is_wide()) {
    for (const int32_t token : tokens) narrow_.push_back(static_cast<uint16_t>(token));
  }
  const size_t width = is_wide() ? sizeof(int32_t) : sizeof(uint16_t);
  file_.write(LlmcHeader::bytes + width * static_cast<uint64_t>(count_),
              is_wide() ? std::as_bytes(tokens) : std::as_bytes(std::span(narrow_)));
  count_ += static_cast<int64_t>(tokens.size());
}

void ShardWriter::finish() {
  LlmcHeader header;
  header[0] = is_wide() ? llmc_llama_tokens_magic : llmc_tokens_magic;
  header[1] = is_wide() ? 7 : 1;
  header[2] = static_cast<int32_t>(count_);
  header.write(file_);
}

}  // namespace spool
