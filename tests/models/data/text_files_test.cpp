// Which files are text, which are shards, and what the errors say about others.

#include "spool/models/data/text_files.h"

#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TemporaryDirectory;

class DataFiles : public ::testing::Test {
 protected:
  bool is_shard(const char* name, const std::string& content,
                DataFormat format = DataFormat::automatic) {
    const std::vector files{d_.file(name, content)};
    return are_shards(files, format);
  }
  void refused(const char* name, const std::string& content,
               std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(name);
    expect_error(ErrorKind::file, words, [&] { is_shard(name, content); });
    EXPECT_FALSE(is_shard(name, content, DataFormat::text));
  }

  const TemporaryDirectory d_;
};

std::string in_utf16(std::string_view text, bool big) {
  std::string bytes;
  for (const char c : text) bytes += big ? std::string{'\0', c} : std::string{c, '\0'};
  return bytes;
}

std::string numbers(std::vector<int32_t> header) {
  header.resize(256);
  return {reinterpret_cast<const char*>(header.data()), 1024};
}

TEST_F(DataFiles, AreTextWhateverTheirBytesWithoutNulOrAKnownBeginning) {
  for (const std::string text :
       {"plain", "caf\xe9 in Latin-1", "\x80\xff\x01", "", "GGUF is a form", "PAR1 and PAR2",
        "BZh is a word", "GIF89a is another", "<htmlish", "<?xml version=\"1.0\"?><mediawiki>"}) {
    EXPECT_FALSE(is_shard("t", text)) << text;
  }
  EXPECT_FALSE(is_shard("page.html", "<!DOCTYPE html><p>meant</p>"));
  EXPECT_FALSE(is_shard("words.bin", "text in spite of its name"));
}

TEST_F(DataFiles, AreShardsByTheirFirstBytesWhateverTheirNames) {
  EXPECT_TRUE(is_shard("a", numbers({20240520, 1, 3})));
  EXPECT_TRUE(is_shard("a.txt", numbers({20240801, 7, 3})));
  EXPECT_TRUE(is_shard("damaged.bin", numbers({20240521, 1, 3})));
  EXPECT_FALSE(is_shard("a", numbers({20240520, 1, 3}), DataFormat::by_name));
  EXPECT_TRUE(is_shard("a.bin", "x", DataFormat::by_name));
}

TEST_F(DataFiles, AreRefusedByWhatTheyAre) {
  using std::string_literals::operator""s;
  refused("a.txt", "\x1f\x8b\x08\0\0\0"s, {"a.txt", "gzip", "gunzip"});
  refused("a.zst", "\x28\xb5\x2f\xfd--", {"zstd"});
  refused("a.xz",
          "\xfd"
          "7zXZ\0--"s,
          {"xz"});
  refused("a.bz2", "BZh91AY&SY--", {"bzip2"});
  refused("a.zip", "PK\x03\x04" + std::string(22, '\0') + "\5\0\0\0a.txt"s, {"zip archive"});
  refused("a.docx", "PK\x03\x04" + std::string(22, '\0') + "\x13\0\0\0[Content_Types].xml"s,
          {"office"});
  refused("utf16", "\xff\xfe" + in_utf16("Dear reader", false), {"UTF-16", "UTF-8"});
  refused("bare16", in_utf16("Dear reader, this is a text", false), {"UTF-16, little"});
  refused("big16", in_utf16("Dear reader, this is a text", true), {"UTF-16, big"});
  refused("a.parquet", "PAR1\x15\x04--", {"Parquet", "column"});
  refused("a.arrow", "ARROW1\0\0--"s, {"Arrow"});
  refused("a.npy", "\x93NUMPY\1\0--"s, {"NumPy"});
  refused("a.h5", "\x89HDF\r\n\x1a\n--", {"HDF5"});
  refused("a.db", "SQLite format 3\0--"s, {"SQLite"});
  refused("a.gguf", "GGUF\3\0\0\0--"s, {"GGUF"});
  refused("a.pkl", "\x80\4--", {"pickle"});
  refused("a.pt", "PK\x03\x04" + std::string(22, '\0') + "\x10\0\0\0archive/data.pkl"s,
          {"PyTorch"});
  refused("a.pdf", "%PDF-1.7\n", {"PDF"});
  refused("a.safetensors", "\x40\0\0\0\0\0\0\0{\"a\""s, {"safetensors"});
  refused("pointer", "version https://git-lfs.github.com/spec/v1\noid",
          {"Git LFS", "git lfs pull"});
  refused("page.txt", "\n <!doctype HTML>\n<p>", {"web page"});
  refused("model.bin", numbers({20240326, 3}), {"model of llm.c"});
  refused("questions.bin", numbers({20240522, 1}), {"multiple-choice"});
  refused("nul", "abc\0def"s, {"byte 3 is a NUL"});
}

TEST_F(DataFiles, OfJsonLinesAndTablesAreRefusedByName) {
  for (const char* name : {"a.jsonl", "a.NDJSON"}) refused(name, "{}\n", {name, "JSON lines"});
  for (const char* name : {"a.csv", "a.Tsv"}) refused(name, "a,b\n", {name, "table"});
}

TEST_F(DataFiles, ToTokenizeAreNoShards) {
  const std::vector files{d_.file("a", numbers({20240520, 1, 3}))};
  expect_error(ErrorKind::file, {"is a shard of tokens already"},
               [&] { check_are_text(files, DataFormat::automatic); });
  EXPECT_NO_THROW(check_are_text(files, DataFormat::text));
}

std::vector<int32_t> written(const std::vector<std::vector<int32_t>>& documents) {
  std::vector<int32_t> all;
  DocumentWriter writer(/*between=*/0, [&](std::span<const int32_t> tokens) {
    all.insert(all.end(), tokens.begin(), tokens.end());
  });
  for (const auto& tokens : documents) {
    writer.begin_document();
    for (const int32_t token : tokens) writer.append(std::vector{token});
  }
  return all;
}

TEST(Documents, HaveOneTokenBetweenThem) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(written({{1, 2}, {3}, {4}}), (Ids{1, 2, 0, 3, 0, 4}));
  EXPECT_EQ(written({{1, 0}, {3}, {0, 4}}), (Ids{1, 0, 3, 0, 4}));  // it is there already
  EXPECT_EQ(written({{1}, {}, {2}}), (Ids{1, 0, 2}));
  EXPECT_EQ(written({{}, {1}}), Ids{1});
}

TEST(Documents, ThatRunTogetherAreReported) {
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(describe_joined_documents(1, *bytes, BeginOfText::written), "");
  EXPECT_TRUE(testing::contains(describe_joined_documents(3, *bytes, BeginOfText::written),
                                "the 3 files are read as one text: the tokenizer bytes"));
}

}  // namespace
}  // namespace spool
