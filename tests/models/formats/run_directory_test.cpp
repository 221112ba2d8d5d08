// The directory of a run and the checkpoints in it; text files and JSON.

#include "spool/models/formats/run_directory.h"

#include "spool/runtime/files/json.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::content_of;
using testing::error_of;
using testing::names_in;
using testing::TemporaryDirectory;

using Names = std::set<std::string>;

auto writing(const std::string& text) {
  return [text](const fs::path& partial) { write_text_file_atomically(partial / "state", text); };
}

TEST(RunDirectory, WritesAndNamesTheLatest) {
  const TemporaryDirectory d;
  RunDirectory run(d.path() / "new" / "run");
  EXPECT_FALSE(run.latest());
  run.write(100, writing("one"));
  EXPECT_EQ(run.latest(), run.path() / "step-000100");
  EXPECT_EQ(content_of(*run.latest() / "state"), "one");
  EXPECT_EQ(fs::read_symlink(run.path() / "latest"), "step-000100");
  run.write(12345678, writing("two"));
  EXPECT_EQ(names_in(run.path()), (Names{".lock", "latest", "step-000100", "step-12345678"}));
  EXPECT_EQ(latest_checkpoint(run.path()), run.path() / "step-12345678");
}

TEST(RunDirectory, KeepsTheNewestAndWhatIsNotOurs) {
  const TemporaryDirectory d;
  d.file("step-000001/precious", "by somebody else");
  d.file("step-7/precious", "by somebody else");
  d.file("step-000002", "a file");
  RunDirectory run(d.path(), /*keep=*/3);
  for (int64_t step : {10, 20, 30, 40, 50}) run.write(step, writing("x"));
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000001", "step-000002", "step-7",
                                       "step-000030", "step-000040", "step-000050"}));
  EXPECT_TRUE(contains(error_of([&] { run.write(1, writing("x")); }), "not written by Spool"));
  EXPECT_EQ(names_in(d.path() / "step-000001"), Names{"precious"});
  EXPECT_EQ(run.latest(), d.path() / "step-000050");
}

TEST(RunDirectory, NeverRemovesTheLatest) {
  const TemporaryDirectory d;
  RunDirectory run(d.path(), /*keep=*/1);
  run.write(50, writing("first"));
  run.write(30, writing("resumed from before"));
  EXPECT_EQ(run.latest(), d.path() / "step-000030");
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000030", "step-000050"}));
  run.write(50, writing("again"));
  EXPECT_EQ(content_of(d.path() / "latest" / "state"), "again");
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000050"}));
  run.write(50, writing("and again"));
  EXPECT_EQ(content_of(d.path() / "latest" / "state"), "and again");
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000050"}));
}

TEST(RunDirectory, AFillThatThrowsLeavesNothing) {
  const TemporaryDirectory d;
  RunDirectory run(d.path());
  run.write(1, writing("whole"));
  const auto failing = [](const fs::path& partial) {
    write_text_file_atomically(partial / "state", "half");
    fail(ErrorKind::file, "the disk is full");
  };
  EXPECT_EQ(error_of([&] { run.write(2, failing); }), "the disk is full");
  EXPECT_EQ(error_of([&] { run.write(1, failing); }), "the disk is full");
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000001"}));
  EXPECT_EQ(content_of(d.path() / "latest" / "state"), "whole");
}

TEST(RunDirectory, RemovesWhatACrashHasLeft) {
  const TemporaryDirectory d;
  d.file(".step-000007.partial/model", "half");
  d.file(".step-000003.old.partial/model", "half");
  fs::create_symlink("step-000007", d.path() / ".latest.partial");
  d.file(".hidden", "not a partial");
  RunDirectory run(d.path());
  EXPECT_EQ(names_in(d.path()), (Names{".hidden", ".lock"}));
}

TEST(RunDirectory, IsOneRunsAtATime) {
  const TemporaryDirectory d;
  {
    const RunDirectory first(d.path());
    EXPECT_TRUE(contains(error_of([&] { RunDirectory second(d.path()); }), "another run"));
  }
  EXPECT_EQ(error_of([&] { RunDirectory third(d.path()); }), "");
}

TEST(RunDirectory, WhatCannotWorkIsASentence) {
  const TemporaryDirectory d;
  const fs::path file = d.file("file", "text");
  EXPECT_TRUE(contains(error_of([&] { RunDirectory run(file); }), file.string()));
  EXPECT_TRUE(contains(error_of([&] { RunDirectory run(file / "below"); }), "file/below"));
  EXPECT_NE(error_of([&] { RunDirectory run("/proc/spool"); }), "");
  EXPECT_NE(error_of([&] { RunDirectory run(d.path(), 0); }), "");
  EXPECT_NE(error_of([&] { RunDirectory(d.path()).write(-1, writing("x")); }), "");
}

TEST(RunDirectory, ALatestThatNamesNoCheckpointIsASentence) {
  const TemporaryDirectory d;
  EXPECT_FALSE(latest_checkpoint(d.path()));
  EXPECT_FALSE(latest_checkpoint(d.path() / "missing"));
  const auto with_latest = [&](const std::string& target) {
    fs::remove(d.path() / "latest");
    fs::create_symlink(target, d.path() / "latest");
    return error_of([&] { latest_checkpoint(d.path()); });
  };
  fs::create_directory(d.path() / "elsewhere");
  EXPECT_TRUE(contains(with_latest("step-000100"), "step-000100"));
  EXPECT_NE(with_latest("elsewhere"), "");
  EXPECT_NE(with_latest("../step-000100"), "");
  fs::remove(d.path() / "latest");
  d.file("latest", "step-000100");
  EXPECT_NE(error_of([&] { latest_checkpoint(d.path()); }), "");
}

TEST(TextFile, IsReplacedWhole) {
  const TemporaryDirectory d;
  const fs::path path = d.path() / "plan.json";
  write_text_file_atomically(path, "{\"a\": 1}");
  write_text_file_atomically(path, "{}");
  EXPECT_EQ(content_of(path), "{}");
  EXPECT_EQ(names_in(d.path()), Names{"plan.json"});
  fs::create_directory(d.path() / "directory");
  EXPECT_NE(error_of([&] { write_text_file_atomically(d.path() / "directory", "x"); }), "");
  EXPECT_NE(error_of([&] { write_text_file_atomically(path / "below", "x"); }), "");
  EXPECT_EQ(names_in(d.path()), (Names{"directory", "plan.json"}));
}

TEST(Json, WhatIsWrongIsASentence) {
  const TemporaryDirectory d;
  const auto error = [&](const std::string& text) {
    const fs::path file = d.file("x.json", text);
    const std::string e = error_of([&] { read_json(file); });
    EXPECT_TRUE(e.empty() || contains(e, file.string())) << e;
    return e;
  };
  EXPECT_EQ(error("{\"a\": [1, {\"a\": 2}]}"), "");
  EXPECT_TRUE(contains(error(""), "is not JSON"));
  EXPECT_TRUE(contains(error("{\"a\": "), "is not JSON"));
  EXPECT_TRUE(contains(error("{\"a\": \"\xff\"}"), "is not JSON"));
  EXPECT_TRUE(contains(error("{} {}"), "is not JSON"));
  EXPECT_TRUE(contains(error("{\"a\": 1, \"a\": 2}"), "twice"));
  EXPECT_EQ(error(std::string(16, '[') + std::string(16, ']')), "");
  EXPECT_TRUE(contains(error(std::string(17, '[') + std::string(17, ']')), "nested"));
  EXPECT_TRUE(contains(error(std::string(900'000, '[')), "nested"));
  EXPECT_TRUE(contains(error_of([&] { read_json(d.path() / "no.json"); }), "No such file"));
  EXPECT_TRUE(contains(error_of([&] { read_json(d.path()); }), "is a directory"));
}

}  // namespace
}  // namespace spool
