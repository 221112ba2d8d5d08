// Shards of tokens, and data that is given as shards or as text.

#include "spool/models/data/token_files.h"

#include <sys/resource.h>

#include <cstring>

#include "spool/models/data/data_reader.h"
#include "spool/models/data/shard_writer.h"
#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::expect_error;
using testing::source_folder;
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

TEST(Shards, AreOneSequenceAcrossFiles) {
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
  expect_error(ErrorKind::invalid, {"tokens 5 to 7 do not exist: there are 6"},
               [&] { tokens->read(5, two); });
}

TEST(Shards, NameTokensBeyondTheVocabulary) {
  const TemporaryDirectory d;
  const auto read = [&](const std::string& content, int64_t vocabulary) {
    const std::vector files = {d.file("a.bin", content)};
    all_of(open_shards(files, vocabulary));
  };
  const std::string narrow = shard({20240520, 1, 3}, U16{1, 9, 2});
  EXPECT_NO_THROW(read(narrow, 10));
  expect_error(ErrorKind::file, {"a.bin: token 1 is 9", "not in the vocabulary"},
               [&] { read(narrow, 9); });
  const std::string wide = shard({20240801, 7, 2}, U32{1, UINT32_MAX});
  expect_error(ErrorKind::file, {"token 1 is 4294967295"}, [&] { read(wide, 10); });
}

TEST(Shards, RefuseEachHeaderFieldThatIsWrong) {
  const TemporaryDirectory d;
  const auto open = [&](const std::string& content) {
    const std::vector files = {d.file("a.bin", content)};
    open_shards(files, 100);
  };
  const auto refused = [&](const std::string& content, std::string_view words) {
    expect_error(ErrorKind::file, {"a.bin: ", words}, [&] { open(content); });
  };
  const U16 tokens = {1, 2, 3};
  const std::string good = shard({20240520, 1, 3}, tokens);
  EXPECT_NO_THROW(open(good));
  for (const int32_t magic : {0, -1, 20240521, 1 << 30})
    refused(shard({magic, 1, 3}, tokens), "header field 0, magic");
  for (const int32_t version : {0, 2, 7, -1})
    refused(shard({20240520, version, 3}, tokens), "header field 1, version");
  refused(shard({20240801, 1, 3}, tokens), "only 7");
  for (const int32_t count : {0, -1, INT32_MIN})
    refused(shard({20240520, 1, count}, tokens), "header field 2, tokens");
  for (const int32_t count : {1, 2, 4, INT32_MAX})
    refused(shard({20240520, 1, count}, tokens), "tokens require");
  for (size_t size = 0; size < good.size(); ++size) refused(good.substr(0, size), "bytes long");
  refused(good + "x", "bytes long");
}

TEST(ShardWriter, WritesTokensOf16BitsAndAHeaderAtTheEnd) {
  const TemporaryDirectory d;
  File file = File::create(d.path() / "a.bin");
  ShardWriter writer(file, /*vocabulary=*/65536);
  writer.append(std::vector<int32_t>{1, 2});
  writer.append(std::vector<int32_t>{65535});
  EXPECT_EQ(writer.size(), 3);
  for (const int32_t token : {65536, -1}) {
    expect_error(ErrorKind::invalid,
                 {"a.bin", sentence("token ", token), "is not in the vocabulary, 0 to 65535"},
                 [&] { writer.append(std::vector<int32_t>{token}); });
  }
  const std::vector files = {d.path() / "a.bin"};
  expect_error(ErrorKind::file, {"a.bin: header field 0"}, [&] { open_shards(files, 65536); });
  writer.finish();
  EXPECT_EQ(testing::content_of(files[0]), shard({20240520, 1, 3}, U16{1, 2, 65535}));
}

TEST(ShardWriter, WritesTokensOf32BitsOfALargerVocabulary) {
  const TemporaryDirectory d;
  const fs::path path = d.path() / "a.bin";
  File file = File::create(path);
  ShardWriter writer(file, /*vocabulary=*/65537);
  writer.append(std::vector<int32_t>{1, 65536});
  writer.append(std::vector<int32_t>{2});
  expect_error(ErrorKind::invalid, {"token 65537 is not in the vocabulary"},
               [&] { writer.append(std::vector<int32_t>{65537}); });
  writer.finish();
  EXPECT_EQ(testing::content_of(path), shard({20240801, 7, 3}, U32{1, 65536, 2}));
}

// A tokenizer with a token for each byte, from 100000 on.
class WideTokenizer : public Tokenizer {
 public:
  std::string_view name() const override { return "wide"; }
  int64_t vocabulary() const override { return 200000; }
  void encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    for (size_t i = 0; i < text.size(); ++i) tokens.push_back(100000 + text[i]);
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) text.push_back(static_cast<char>(token - 100000));
    return text;
  }
  std::optional<int32_t> end_of_text() const override { return {}; }
  size_t boundary(std::string_view text) const override { return text.size(); }
};

TEST(DataReader, OpensTextOfALargeVocabulary) {
  const TemporaryDirectory d;
  const std::vector texts = {d.file("t.txt", "ab")};
  const WideTokenizer tokenizer;
  const DataReader reader{.tokenizer = tokenizer, .vocabulary = 200000};
  EXPECT_EQ(all_of(reader.open(texts)), (std::vector<int32_t>{100097, 100098}));
  const auto result = tokenize(tokenizer, texts, {.out = d.path() / "s.bin"});
  EXPECT_EQ(all_of(reader.open(result.shards)), (std::vector<int32_t>{100097, 100098}));
  std::string back;
  detokenize(tokenizer, result.shards, [&](std::string_view text) { back += text; });
  EXPECT_EQ(back, "ab");
}

TEST(Shards, SayWhichHasBecomeShorterOrWasWrittenTo) {
  const TemporaryDirectory d;
  const std::vector files = {d.file("a.bin", shard({20240520, 1, 3}, U16{1, 2, 3})),
                             d.file("b.bin", shard({20240801, 7, 2}, U32{4, 5}))};
  const fs::path text = d.file("t.txt", "abc");
  const auto before = fs::last_write_time(text) - std::chrono::hours(1);
  for (const fs::path& path : {files[0], files[1], text}) fs::last_write_time(path, before);
  const Tokens shards = open_shards(files, 10), texts = open_texts(std::vector{text});
  EXPECT_EQ(shards->changed_files(), std::vector<std::string>{});
  fs::resize_file(files[1], 1024 + 4);
  fs::resize_file(text, 2);
  int32_t some[3];
  shards->read(1, some);  // up to the end of the shard
  EXPECT_EQ(some[2], 4);
  expect_error(ErrorKind::file, {"b.bin: had 1032 bytes when it was opened, and has 1028 now"},
               [&] { shards->read(2, some); });
  expect_error(ErrorKind::file, {"t.txt: had 3 bytes when it was opened, and has 2 now"},
               [&] { texts->read(0, some); });
  EXPECT_EQ(shards->changed_files(), std::vector{files[1].string()});
  EXPECT_EQ(texts->changed_files(), std::vector{text.string()});
  EXPECT_EQ(split_validation(shards, nullptr).training->changed_files(), shards->changed_files());
}

TEST(Texts, MayBeMoreThanAProgramMayHaveOpenAtFirst) {
  struct Limit {
    ::rlimit before = {};
    Limit() {
      ::getrlimit(RLIMIT_NOFILE, &before);
      set(64);
    }
    ~Limit() { set(before.rlim_cur); }
    void set(::rlim_t files) {
      const ::rlimit limit{.rlim_cur = files, .rlim_max = before.rlim_max};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
  } limit;
  if (limit.before.rlim_max < 400) GTEST_SKIP() << "too few files may be open";
  const TemporaryDirectory d;
  std::vector<fs::path> files;
  for (int i = 0; i < 100; ++i) files.push_back(d.file(std::to_string(i), "a"));
  EXPECT_EQ(open_texts(files)->size(), 100);
}

TEST(DataReader, PutsTheTokenThatBeginsATextBeforeEachFileAndTheOneThatEndsItBetween) {
  const TemporaryDirectory d;
  const auto tokenizer =
      read_tokenizer_json(source_folder() / "tests/reference/tokenizers/sentencepiece.json");
  const std::vector<fs::path> files{d.file("a.txt", "one text"), d.file("b.txt", "another")};
  std::vector<int32_t> wanted;
  for (const char* text : {"one text", "another"}) {
    if (!wanted.empty()) wanted.push_back(tokenizer->end_of_text().value());
    wanted.push_back(tokenizer->begin_of_text().at(0));
    tokenizer->encode(text, wanted);
  }
  const DataReader reader{.tokenizer = *tokenizer, .vocabulary = tokenizer->vocabulary()};
  EXPECT_EQ(all_of(reader.open(files)), wanted);
}

TEST(DataReader, PutsTheTokenThatEndsATextBetweenFiles) {
  const TemporaryDirectory d;
  const auto gpt2 = read_gpt2_tokenizer(d.file("merges.txt", "a b\n"));
  const int32_t ab = 256, a = 'a' - 33, end = 257;
  const auto open = [&](const std::vector<std::string>& texts, bool separate = true) {
    std::vector<fs::path> files;
    for (const std::string& text : texts)
      files.push_back(d.file(std::to_string(files.size()), text));
    return all_of(
        DataReader{.tokenizer = *gpt2, .vocabulary = 258, .separate = separate}.open(files));
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(open({"ab", "a", "ab"}), (Ids{ab, end, a, end, ab}));
  EXPECT_EQ(open({"ab", "a", "ab"}, /*separate=*/false), (Ids{ab, a, ab}));
  EXPECT_EQ(open({"ab"}), (Ids{ab}));
}

TEST(DataReader, SkipsAByteOrderMarkAndReadsAnyBytesAsTextIfToldSo) {
  const TemporaryDirectory d;
  const auto gpt2 = read_gpt2_tokenizer(d.file("merges.txt", "a b\n"));
  const auto bytes = make_byte_tokenizer();
  const std::vector files{d.file("t.txt",
                                 "\xef\xbb\xbf"
                                 "ab")};
  const std::vector other{d.file("t.gz", std::string("\x1f\x8b\0a", 4))};
  const auto open = [](const Tokenizer& t, const std::vector<fs::path>& from, DataFormat format) {
    return all_of(DataReader{.tokenizer = t, .vocabulary = 258, .format = format}.open(from));
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(open(*bytes, files, DataFormat::automatic), (Ids{'a', 'b'}));
  EXPECT_EQ(open(*gpt2, files, DataFormat::automatic), Ids{256});
  for (const DataFormat format : {DataFormat::text, DataFormat::by_name}) {
    EXPECT_EQ(open(*bytes, files, format), (Ids{0xef, 0xbb, 0xbf, 'a', 'b'}));
    EXPECT_EQ(open(*gpt2, files, format).size(), 4u);
    EXPECT_EQ(open(*bytes, other, format), (Ids{0x1f, 0x8b, 0, 'a'}));
  }
  expect_error(ErrorKind::file, {"t.gz: is compressed by gzip"},
               [&] { open(*bytes, other, DataFormat::automatic); });
}

TEST(DataReader, OpensShardsOrTextOfEitherTokenizer) {
  const TemporaryDirectory d;
  const auto gpt2 = read_gpt2_tokenizer(d.file("merges.txt", "a b\nab c\n"));
  const auto bytes = make_byte_tokenizer();
  const fs::path text = d.file("t.txt", "abc ab"), other = d.file("u.txt", "c");
  const fs::path tokens = d.file("s.bin", shard({20240520, 1, 2}, U16{7, 8}));
  const auto open = [](const Tokenizer& t, std::vector<fs::path> files, int64_t vocabulary = 300) {
    return all_of(DataReader{.tokenizer = t, .vocabulary = vocabulary}.open(files));
  };
  EXPECT_EQ(open(*bytes, {other, text}), (std::vector<int32_t>{'c', 'a', 'b', 'c', ' ', 'a', 'b'}));
  const int32_t c = 'c' - 33, blank = 220, end = 258;
  EXPECT_EQ(open(*gpt2, {text, other}), (std::vector<int32_t>{257, blank, 256, end, c}));
  EXPECT_EQ(open(*gpt2, {tokens}), (std::vector<int32_t>{7, 8}));
  // A shard is recognised by its first bytes, whatever its name.
  const fs::path renamed = d.file("tokens.txt", testing::content_of(tokens));
  EXPECT_EQ(open(*gpt2, {renamed}), (std::vector<int32_t>{7, 8}));
  expect_error(ErrorKind::invalid, {"s.bin", "text", "only one kind"}, [&] {
    open(*gpt2, {text, tokens});
  });
  // A model with fewer tokens refuses only data that has the others.
  EXPECT_EQ(open(*gpt2, {text, other}, 258), (std::vector<int32_t>{257, blank, 256, c}));
  expect_error(ErrorKind::invalid,
               {"t.txt: has the token \"abc\" near byte 0", "number 257", "0 to 256"}, [&] {
                 open(*gpt2, {other, text}, 257);
               });
  expect_error(ErrorKind::file, {"token 2 is 99", "0 to 97"}, [&] { open(*bytes, {text}, 'b'); });
  expect_error(ErrorKind::file, {"token 1 is 8"}, [&] { open(*gpt2, {tokens}, 8); });
  expect_error(ErrorKind::file, {"e.txt: is empty"}, [&] {
    open(*gpt2, {text, d.file("e.txt", "")});
  });
}

}  // namespace
}  // namespace spool
