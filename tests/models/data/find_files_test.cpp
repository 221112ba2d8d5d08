// Patterns of files, and text files read as one sequence of bytes.

#include "spool/models/data/find_files.h"

#include <sys/stat.h>

#include <algorithm>

#include "spool/models/data/token_files.h"
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

TEST(Texts, AreOneSequenceAcrossFiles) {
  const TemporaryDirectory d;
  const std::vector files = {d.file("b", "hello "), d.file("a", "w"), d.file("c", "orld\xff")};
  const Tokens texts = open_texts(files);
  const std::string whole = "hello world\xff";
  ASSERT_EQ(texts->size(), static_cast<int64_t>(whole.size()));
  for (size_t begin = 0; begin <= whole.size(); ++begin) {
    for (size_t count = 0; begin + count <= whole.size(); ++count) {
      std::vector<int32_t> out(count);
      texts->read(static_cast<int64_t>(begin), out);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], static_cast<unsigned char>(whole[begin + i]));
    }
  }
  std::vector<int32_t> out(3);
  expect_error(ErrorKind::invalid, {"tokens 10 to 13 do not exist: there are 12"},
               [&] { texts->read(10, out); });
  expect_error(ErrorKind::invalid, {"tokens -1 to 2 do not exist: there are 12"},
               [&] { texts->read(-1, out); });
  expect_error(ErrorKind::invalid, {"no data files"}, [] { open_texts({}); });
  EXPECT_TRUE(contains(texts->name(), "b and 2 more"));
}

TEST(FindFiles, SortsMatchesAndNamesEachFileOnce) {
  const TemporaryDirectory d;
  d.file("b.txt", "b"), d.file("a.txt", "a"), d.file("empty.txt", ""), d.file("d.txt/x", "x");
  d.file("[x].txt", "brackets");
  const auto names = [&](std::vector<std::string> patterns) {
    std::string all;
    for (std::string& p : patterns) p = (d.path() / p).string();
    for (const fs::path& file : find_files(patterns)) all += file.filename().string() + " ";
    return all;
  };
  EXPECT_EQ(names({"[ab].txt"}), "a.txt b.txt ");
  EXPECT_EQ(names({"b.txt", "*.txt"}), "b.txt [x].txt a.txt ");
  EXPECT_EQ(names({"a.txt", "d.txt/../a.txt"}), "a.txt ");
  EXPECT_EQ(names({"[x].txt"}), "[x].txt ");
}

TEST(FindFiles, RefusesPatternsWithoutAFileToRead) {
  const TemporaryDirectory d;
  d.file("empty", ""), d.file("empties/a", ""), d.file("file", "text");
  ASSERT_EQ(::mkfifo((d.path() / "pipe").c_str(), 0600), 0);
  fs::create_symlink("nowhere", d.path() / "dangling");
  const auto refused = [&](const std::string& name, std::string_view words) {
    const std::vector<std::string> patterns = {(d.path() / name).string()};
    SCOPED_TRACE(name);
    expect_error(ErrorKind::file, {d.path().string(), words},
                 [&] { open_texts(find_files(patterns)); });
  };
  refused("missing.txt", "no such file");
  refused("dangling", "no such file");
  refused("*.txt", "no file matches");
  refused("empties/*", "empty files");
  refused("empty", "is empty");
  refused("empties", "is a directory");
  refused("pipe", "not a regular file");
  refused("**/*.txt", "**");
  refused("file/below", "file/below");
  refused(std::string(300, 'x'), "File name too long");
}

TEST(DefaultTexts, AreTheSourcesOfTheRepository) {
  const fs::path root = source_folder();
  const auto files = default_texts(root);
  EXPECT_TRUE(std::ranges::is_sorted(files));
  EXPECT_NE(std::ranges::find(files, root / "models/data/batches.h"), files.end());
  EXPECT_GT(open_texts(files)->size(), 50000);
  const TemporaryDirectory d;
  expect_error(ErrorKind::file, {d.path().string(), "text files"},
               [&] { default_texts(d.path()); });
}

}  // namespace
}  // namespace spool
