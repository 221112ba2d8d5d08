// Text files that are written atomically, and JSON files that are read strictly.

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::expect_error;
using testing::names_in;
using testing::TemporaryDirectory;

using Names = std::set<std::string>;

TEST(TextFile, IsReplacedWhole) {
  const TemporaryDirectory d;
  const fs::path path = d.path() / "plan.json";
  write_text_file_atomically(path, "{\"a\": 1}");
  write_text_file_atomically(path, "{}");
  EXPECT_EQ(content_of(path), "{}");
  EXPECT_EQ(names_in(d.path()), Names{"plan.json"});
  fs::create_directory(d.path() / "directory");
  expect_error(ErrorKind::file, {"/directory", "is a directory"},
               [&] { write_text_file_atomically(d.path() / "directory", "x"); });
  expect_error(ErrorKind::file, {"plan.json/", "cannot be"},
               [&] { write_text_file_atomically(path / "below", "x"); });
  EXPECT_EQ(names_in(d.path()), (Names{"directory", "plan.json"}));
}

TEST(Json, RefusesOtherTextRepeatedKeysAndDeepNesting) {
  const TemporaryDirectory d;
  const auto open = [&](const std::string& text) { read_json(d.file("x.json", text)); };
  const auto refused = [&](const std::string& text, std::string_view words) {
    expect_error(ErrorKind::file, {"/x.json: ", words}, [&] { open(text); });
  };
  open("{\"a\": [1, {\"a\": 2}]}");
  refused("", "is not JSON: line 1, column 1: unexpected end of input");
  refused("{\"a\": ", "is not JSON");
  refused("{\"a\":\n [1,}", "is not JSON: line 2, column 5: unexpected '}'; expected '['");
  refused("[nul]", "line 1, column 5: invalid literal");
  refused("[1e999]", "column 6: the number is too large");
  refused("{\"a\": \"\xff\"}", "is not JSON");
  refused("{} {}", "is not JSON");
  refused("{\"a\": 1, \"a\": 2}", "twice");
  open(std::string(16, '[') + std::string(16, ']'));
  refused(std::string(17, '[') + std::string(17, ']'), "nested");
  refused(std::string(900'000, '['), "nested");
}

TEST(Path, OfALoopOfLinksIsAnError) {
  const TemporaryDirectory d;
  const auto loop = d.path() / "loop";
  std::filesystem::create_symlink("loop", loop);
  const auto refused = [&](auto ask) {
    expect_error(ErrorKind::file, {"/loop", ": cannot be", "symbolic links"}, ask);
  };
  refused([&] { path_exists(loop); });
  refused([&] { path_is_directory(loop); });
  refused([&] { path_exists(loop / "below"); });
  refused([&] { write_text_file_atomically(loop, "x"); });
  EXPECT_FALSE(path_exists(d.path() / "none") || path_is_directory(d.path() / "none"));
  EXPECT_FALSE(path_exists(d.file("file", "x") / "below"));
  EXPECT_TRUE(path_exists(d.path() / "file") && path_is_directory(d.path()));
}

TEST(Json, ReportsWhyAFileCannotBeRead) {
  const TemporaryDirectory d;
  expect_error(ErrorKind::file, {"no.json", "No such file"},
               [&] { read_json(d.path() / "no.json"); });
  expect_error(ErrorKind::file, {"is a directory"}, [&] { read_json(d.path()); });
}

}  // namespace
}  // namespace spool
