// Files that are read while others write to them.

#include "spool/runtime/files/input_file.h"

#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::TemporaryDirectory;

std::string text_of(const InputFile& file, uint64_t begin, size_t size) {
  std::string text(size, ' ');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_in_place(const fs::path& path, std::string_view text) {
  std::fstream(path, std::ios::in | std::ios::out) << text;
}

TEST(InputFile, SaysWhenTheFileHasBecomeShorter) {
  const TemporaryDirectory d;
  const fs::path path = d.file("a", "0123456789");
  const InputFile file(path);
  EXPECT_EQ(text_of(file, 7, 3), "789");
  fs::resize_file(path, 8);
  EXPECT_EQ(text_of(file, 7, 1), "7");
  expect_error(ErrorKind::file, {"/a: had 10 bytes when it was opened, and has 8 now"},
               [&] { text_of(file, 7, 3); });
  fs::resize_file(path, 10);
  expect_error(ErrorKind::file, {"/a: ends at byte 10"}, [&] { text_of(file, 7, 4); });
}

TEST(InputFile, KnowsWhetherItWasWrittenTo) {
  const TemporaryDirectory d;
  const fs::path path = d.file("a", "0123456789");
  const auto long_ago = fs::last_write_time(path) - std::chrono::hours(1);
  fs::last_write_time(path, long_ago);
  const InputFile file(path);
  EXPECT_FALSE(file.has_changed());
  write_in_place(path, "x");
  EXPECT_TRUE(file.has_changed());
  fs::last_write_time(path, long_ago);
  EXPECT_FALSE(file.has_changed());
  fs::resize_file(path, 11);
  fs::last_write_time(path, long_ago);
  EXPECT_TRUE(file.has_changed());
}

TEST(InputFile, StaysWhatItWasWhenAnotherTakesItsName) {
  const TemporaryDirectory d;
  const fs::path path = d.file("a", "0123456789");
  const InputFile file(path);
  fs::rename(d.file("b", "x"), path);
  EXPECT_FALSE(file.has_changed());
  EXPECT_EQ(text_of(file, 0, 10), "0123456789");
}

}  // namespace
}  // namespace spool
