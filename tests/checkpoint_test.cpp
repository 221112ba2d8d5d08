// Checkpoints of a run: whole or absent, whenever the writer dies.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "spool/models/json.h"
#include "spool/models/run_directory.h"
#include "spool/models/safetensors.h"
#include "temporary_directory.h"
#include "testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::error_of;
using testing::TemporaryDirectory;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.insert(entry.path().filename().string());
  return names;
}

using Names = std::set<std::string>;

auto writing(const std::string& text) {
  return [text](const fs::path& partial) { write_text_file_atomically(partial / "state", text); };
}

// A checkpoint of 1 MiB in four pieces, all of one byte that depends on the step.
void fill_for(int64_t step, const fs::path& partial) {
  const std::vector<std::byte> piece(size_t{1} << 18, static_cast<std::byte>(step));
  SafetensorsWriter file(partial / "model.safetensors", {{"x", {Shape{1 << 18}, DType::f32}}},
                         {{"step", std::to_string(step)}});
  for (int i = 0; i < 4; ++i) file.append(piece);
  file.finish();
  write_text_file_atomically(partial / "run.json", sentence("{\"step\": ", step, "}"));
}

// Its step; throws if anything of it is missing or wrong.
int64_t read_checkpoint(const fs::path& checkpoint) {
  const auto step = read_json(checkpoint / "run.json").at("step").get<int64_t>();
  const SafetensorsReader file(checkpoint / "model.safetensors");
  std::vector<std::byte> bytes(file.tensors().at(0).spec.nbytes());
  file.read(file.tensors()[0], 0, bytes);
  const std::vector<std::byte> expected(bytes.size(), static_cast<std::byte>(step));
  check(file.metadata().at("step") == std::to_string(step), "metadata of another step");
  check(bytes == expected, "bytes of another step");
  return step;
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

// The child's writes beyond `limit` bytes of a file fail, as on a full disk.
int exit_status_with_file_limit(size_t limit, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit bound = {limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &bound);
    const std::string error = error_of(work);
    ::_exit(error.empty() ? 0 : contains(error, "model.safetensors: cannot be written: ") ? 1 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(RunDirectory, AFullDiskLeavesThePreviousCheckpoint) {
  const TemporaryDirectory d;
  RunDirectory(d.path()).write(1, [](const fs::path& p) { fill_for(1, p); });
  const auto write_two = [&] {
    RunDirectory(d.path()).write(2, [](const fs::path& p) { fill_for(2, p); });
  };
  for (size_t limit : {0u, 5u, 100u, 300000u, (1u << 20) - 1}) {
    EXPECT_EQ(exit_status_with_file_limit(limit, write_two), 1) << limit;
    EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000001"})) << limit;
    EXPECT_EQ(read_checkpoint(*latest_checkpoint(d.path())), 1);
  }
  EXPECT_EQ(exit_status_with_file_limit(size_t{2} << 20, write_two), 0);
  EXPECT_EQ(read_checkpoint(*latest_checkpoint(d.path())), 2);
}

// Writes checkpoints until it is killed, some of them over older ones.
[[noreturn]] void write_without_end(const fs::path& directory) {
  try {
    RunDirectory run(directory);
    const auto latest = run.latest();
    int64_t step = latest ? read_checkpoint(*latest) : 0;
    while (true) {
      step += step % 5 == 4 ? -3 : 1;
      run.write(step, [&](const fs::path& partial) { fill_for(step, partial); });
      if (step % 3 == 0) run.write(step, [&](const fs::path& p) { fill_for(step, p); });
    }
  } catch (const std::exception& e) {
    ::write(STDERR_FILENO, e.what(), std::string_view(e.what()).size());
    ::_exit(1);
  }
}

TEST(RunDirectory, KilledAtAnyMomentItHasAWholeCheckpoint) {
  const TemporaryDirectory d;
  RunDirectory(d.path()).write(0, [](const fs::path& p) { fill_for(0, p); });
  Random random(1);
  int partials = 0;
  for (int kill = 0; kill < 60; ++kill) {
    const pid_t child = ::fork();
    if (child == 0) write_without_end(d.path());
    std::this_thread::sleep_for(std::chrono::microseconds(random.next() % 30000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    for (const std::string& name : names_in(d.path())) {
      if (name.starts_with("step-")) {
        EXPECT_NO_THROW(read_checkpoint(d.path() / name)) << name;
      }
      partials += name.ends_with(".partial");
    }
    const auto latest = latest_checkpoint(d.path());
    ASSERT_TRUE(latest);
    ASSERT_NO_THROW(read_checkpoint(*latest));
  }
  EXPECT_GT(partials, 5) << "the child was never killed in the middle";
  RunDirectory afterwards(d.path());
  for (const std::string& name : names_in(d.path())) EXPECT_FALSE(name.ends_with(".partial"));
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
  EXPECT_TRUE(contains(error(std::string(5'000'000, '[')), "nested"));
  EXPECT_TRUE(contains(error_of([&] { read_json(d.path() / "no.json"); }), "No such file"));
  EXPECT_TRUE(contains(error_of([&] { read_json(d.path()); }), "is a directory"));
}

}  // namespace
}  // namespace spool
