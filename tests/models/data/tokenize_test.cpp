// Which tokenizer is meant, and files of text to shards of tokens and back.

#include "spool/models/data/shard_writer.h"

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_of;
using testing::names_in;
using testing::TemporaryDirectory;

const std::string small_merges = "#version: 0.2\nt h\nth e\n\xc4\xa0 the\na a\naa aa\n";

std::unique_ptr<Gpt2Tokenizer> small_tokenizer() {
  const TemporaryDirectory d;
  return read_gpt2_tokenizer(d.file("merges.txt", small_merges));
}

TEST(TokenizerChoice, IsWhatWasSaidOrWhatTheModelHas) {
  const TemporaryDirectory d, empty;
  const fs::path merges = d.file("merges.txt", small_merges);
  EXPECT_EQ(choose_tokenizer({}).name, "bytes");
  EXPECT_EQ(choose_tokenizer({.name = {}, .merges = merges}).name, "gpt2");
  EXPECT_EQ(choose_tokenizer({}, d.path()).merges, merges);
  EXPECT_EQ(choose_tokenizer({.name = "bytes", .merges = {}}, d.path()).name, "bytes");
  EXPECT_EQ(choose_tokenizer({.name = "gpt2", .merges = {}}, d.path()).merges, merges);
  EXPECT_TRUE(contains(error_of([&] { choose_tokenizer({}, empty.path()); }), "merges.txt"));
  const auto error = [](const TokenizerChoice& asked) {
    return error_of([&] { choose_tokenizer(asked); });
  };
  EXPECT_TRUE(contains(error({.name = "words", .merges = {}}), "there are bytes and gpt2"));
  EXPECT_TRUE(contains(error({.name = "gpt2", .merges = {}}), "needs its vocabulary"));
  EXPECT_TRUE(contains(error({.name = "bytes", .merges = merges}), "leave one of them out"));
  d.file("run.json", R"({"tokenizer":"bytes"})");
  EXPECT_EQ(choose_tokenizer({}, d.path()).name, "bytes");
  d.file("run.json", R"({"tokenizer":"words"})");
  EXPECT_TRUE(contains(error_of([&] { choose_tokenizer({}, d.path()); }), "field tokenizer"));
}

TEST(Tokenize, ShardsAndBack) {
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
  EXPECT_EQ(one.tokens, 6);
  EXPECT_EQ(back(one.shards), "the the\naaaa\xff the");
  EXPECT_EQ(fs::file_size(d.path() / "one.bin"), 1024u + 2 * 6);
  const auto some =
      tokenize(*tokenizer, texts, {.out = d.path() / "s.bin", .separate = true, .shard_tokens = 3});
  EXPECT_EQ(some.shards.size(), 3u);
  EXPECT_EQ(some.shards[2], d.path() / "s_000002.bin");
  EXPECT_EQ(back(some.shards), "<|endoftext|>the the\n<|endoftext|>aaaa\xff the");
  EXPECT_EQ(names_in(d.path()).size(), 6u);
  const auto error = [&](const TokenizeOptions& o) {
    return error_of([&] { tokenize(*tokenizer, texts, o); });
  };
  EXPECT_TRUE(contains(error({.out = texts[0]}), "read and written at once"));
  EXPECT_TRUE(contains(error({.out = d.path() / "x", .shard_tokens = -1}), "tokens of a shard"));
  EXPECT_TRUE(contains(error({.out = d.path() / "no" / "x"}), "No such file"));
  EXPECT_EQ(names_in(d.path()).size(), 6u);
}

}  // namespace
}  // namespace spool
