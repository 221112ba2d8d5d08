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
  refused("", "is not JSON");
  refused("{\"a\": ", "is not JSON");
  refused("{\"a\": \"\xff\"}", "is not JSON");
  refused("{} {}", "is not JSON");
  refused("{\"a\": 1, \"a\": 2}", "twice");
  open(std::string(16, '[') + std::string(16, ']'));
  refused(std::string(17, '[') + std::string(17, ']'), "nested");
  refused(std::string(900'000, '['), "nested");
}

TEST(Json, ReportsWhyAFileCannotBeRead) {
  const TemporaryDirectory d;
  expect_error(ErrorKind::file, {"no.json", "No such file"},
               [&] { read_json(d.path() / "no.json"); });
  expect_error(ErrorKind::file, {"is a directory"}, [&] { read_json(d.path()); });
}

}  // namespace
}  // namespace spool
