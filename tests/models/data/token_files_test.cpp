// Shards of tokens, and data as users name it.

#include "spool/models/data/token_files.h"

#include <cstring>

#include "spool/models/data/data_reader.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_of;
using testing::TemporaryDirectory;

template <class T>
std::string shard(std::vector<int32_t> header, const std::vector<T>& tokens) {
  header.resize(256);
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  return bytes.append(reinterpret_cast<const char*>(tokens.data()), sizeof(T) * tokens.size());
}

std::vector<int32_t> all_of(const Tokens& tokens) {
  std::vector<int32_t> all(static_cast<size_t>(tokens->size()));
  tokens->read(0, all);
  return all;
}

using U16 = std::vector<uint16_t>;
using U32 = std::vector<uint32_t>;

TEST(Shards, AreOneSequence) {
  const TemporaryDirectory d;
  const std::vector files = {
      d.file("a.bin", shard({20240520, 1, 3}, U16{1, 2, 60000})),
      d.file("b.bin", shard({20240801, 7, 2}, U32{100000, 4})),
      d.file("c.bin", shard({20240520, 1, 1}, U16{5})),
  };
  const Tokens tokens = open_shards(files, 128000);
  EXPECT_EQ(all_of(tokens), (std::vector<int32_t>{1, 2, 60000, 100000, 4, 5}));
  EXPECT_TRUE(contains(tokens->name(), "a.bin and 2 more"));
  int32_t two[2];
  tokens->read(2, two);
  EXPECT_EQ(two[1], 100000);
  EXPECT_NE(error_of([&] { tokens->read(5, two); }), "");
}

TEST(Shards, TokensBeyondTheVocabularyAreNamed) {
  const TemporaryDirectory d;
  const auto error = [&](const std::string& content, int64_t vocabulary) {
    const std::vector files = {d.file("a.bin", content)};
    return error_of([&] { all_of(open_shards(files, vocabulary)); });
  };
  const std::string narrow = shard({20240520, 1, 3}, U16{1, 9, 2});
  EXPECT_EQ(error(narrow, 10), "");
  EXPECT_TRUE(contains(error(narrow, 9), "a.bin: token 1 is 9, which is not in the vocabulary"));
  const std::string wide = shard({20240801, 7, 2}, U32{1, UINT32_MAX});
  EXPECT_TRUE(contains(error(wide, 10), "token 1 is 4294967295"));
}

TEST(Shards, EachFieldWrongInTurn) {
  const TemporaryDirectory d;
  const auto error = [&](const std::string& content) {
    const std::vector files = {d.file("a.bin", content)};
    return error_of([&] { open_shards(files, 100); });
  };
  const U16 tokens = {1, 2, 3};
  EXPECT_EQ(error(shard({20240520, 1, 3}, tokens)), "");
  for (const int32_t magic : {0, -1, 20240521, 1 << 30}) {
    EXPECT_TRUE(contains(error(shard({magic, 1, 3}, tokens)), "header field 0, magic"));
  }
  for (const int32_t version : {0, 2, 7, -1}) {
    EXPECT_TRUE(contains(error(shard({20240520, version, 3}, tokens)), "header field 1, version"));
  }
  EXPECT_TRUE(contains(error(shard({20240801, 1, 3}, tokens)), "only 7"));
  for (const int32_t count : {0, -1, INT32_MIN}) {
    EXPECT_TRUE(contains(error(shard({20240520, 1, count}, tokens)), "header field 2, tokens"));
  }
  for (const int32_t count : {1, 2, 4, INT32_MAX}) {
    EXPECT_TRUE(contains(error(shard({20240520, 1, count}, tokens)), "tokens require"));
  }
  const std::string good = shard({20240520, 1, 3}, tokens);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(contains(error(good.substr(0, size)), "a.bin: ")) << size;
  }
  EXPECT_TRUE(contains(error(good + "x"), "a.bin: "));
}

TEST(Shards, AreWritten) {
  const TemporaryDirectory d;
  File file = File::create(d.path() / "a.bin");
  ShardWriter writer(file);
  writer.append(std::vector<int32_t>{1, 2});
  writer.append(std::vector<int32_t>{65535});
  EXPECT_EQ(writer.size(), 3);
  EXPECT_NE(error_of([&] { writer.append(std::vector<int32_t>{65536}); }), "");
  EXPECT_NE(error_of([&] { writer.append(std::vector<int32_t>{-1}); }), "");
  const std::vector files = {d.path() / "a.bin"};
  EXPECT_NE(error_of([&] { open_shards(files, 65536); }), "");
  writer.finish();
  EXPECT_EQ(testing::content_of(files[0]), shard({20240520, 1, 3}, U16{1, 2, 65535}));
}

TEST(Data, IsShardsOrTextOfEitherTokenizer) {
  const TemporaryDirectory d;
  const auto gpt2 = read_gpt2_tokenizer(d.file("merges.txt", "a b\nab c\n"));
  const auto bytes = make_byte_tokenizer();
  const fs::path text = d.file("t.txt", "abc ab"), other = d.file("u.txt", "c");
  const fs::path tokens = d.file("s.bin", shard({20240520, 1, 2}, U16{7, 8}));
  const auto open = [](const Tokenizer& t, std::vector<fs::path> files, int64_t vocabulary = 300) {
    return all_of(DataReader{.tokenizer = t, .vocabulary = vocabulary}.open(files));
  };
  EXPECT_EQ(open(*bytes, {other, text}), (std::vector<int32_t>{'c', 'a', 'b', 'c', ' ', 'a', 'b'}));
  // Files are encoded one by one: nothing joins across their ends.
  const int32_t c = 'c' - 33, blank = 220;
  EXPECT_EQ(open(*gpt2, {text, other}), (std::vector<int32_t>{257, blank, 256, c}));
  EXPECT_EQ(open(*gpt2, {tokens}), (std::vector<int32_t>{7, 8}));
  const auto error = [&](const std::vector<fs::path>& files, int64_t vocabulary) {
    return error_of([&] { open(*gpt2, files, vocabulary); });
  };
  EXPECT_TRUE(contains(error({text, tokens}, 300), "give only one kind"));
  EXPECT_TRUE(contains(error({text}, 258), "smaller than the tokenizer's, 259"));
  EXPECT_TRUE(contains(error({tokens}, 8), "token 1 is 8"));
  EXPECT_TRUE(contains(error({text, d.file("e.txt", "")}, 300), "is empty"));
}

}  // namespace
}  // namespace spool
