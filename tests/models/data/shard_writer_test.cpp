// Text files converted to shards of tokens, and back.

#include "spool/models/data/shard_writer.h"

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::names_in;
using testing::TemporaryDirectory;

const std::string small_merges = "#version: 0.2\nt h\nth e\n\xc4\xa0 the\na a\naa aa\n";

std::unique_ptr<Gpt2Tokenizer> small_tokenizer() {
  const TemporaryDirectory d;
  return read_gpt2_tokenizer(d.file("merges.txt", small_merges));
}

TEST(Tokenize, WritesShardsThatDecodeToTheText) {
  const TemporaryDirectory d;
  const auto tokenizer = small_tokenizer();
  const std::vector texts = {d.file("a", "the the\n"), d.file("b", "aaaa\xff the")};
  const auto back = [&](const std::vector<fs::path>& shards) {
    std::string all;
    detokenize(*tokenizer, shards, [&](std::string_view text) { all += text; });
    return all;
  };
  const auto one = tokenize(*tokenizer, texts, {.out = d.path() / "one.bin"});
  EXPECT_EQ(one.bytes, 17u);
  EXPECT_EQ(one.tokens, 7);
  EXPECT_EQ(back(one.shards), "the the\n<|endoftext|>aaaa\xff the");
  EXPECT_EQ(fs::file_size(d.path() / "one.bin"), 1024u + 2 * 7);
  const auto joined =
      tokenize(*tokenizer, texts, {.out = d.path() / "one.bin", .separation = Separation::none});
  EXPECT_EQ(joined.tokens, 6);
  EXPECT_EQ(back(joined.shards), "the the\naaaa\xff the");
  const auto some = tokenize(
      *tokenizer, texts,
      {.out = d.path() / "s.bin", .separation = Separation::before_each, .shard_tokens = 3});
  EXPECT_EQ(some.shards.size(), 3u);
  EXPECT_EQ(some.shards[2], d.path() / "s_000002.bin");
  EXPECT_EQ(back(some.shards), "<|endoftext|>the the\n<|endoftext|>aaaa\xff the");
  EXPECT_EQ(names_in(d.path()).size(), 6u);
}

TEST(Tokenize, RefusesOutputsItCannotWriteAndLeavesNothing) {
  const TemporaryDirectory d;
  const auto tokenizer = small_tokenizer();
  const std::vector texts = {d.file("a", "the the\n"), d.file("b", "aaaa")};
  const auto refused = [&](ErrorKind kind, const TokenizeOptions& o, std::string_view words) {
    expect_error(kind, {words}, [&] { tokenize(*tokenizer, texts, o); });
  };
  refused(ErrorKind::file, {.out = texts[0]}, "read and written at once");
  refused(ErrorKind::invalid, {.out = d.path() / "x", .shard_tokens = -1}, "tokens of a shard");
  refused(ErrorKind::file, {.out = d.path() / "no" / "x"}, "No such file");
  EXPECT_EQ(names_in(d.path()), (std::set<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace spool
