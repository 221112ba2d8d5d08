// runs: alone
// Checkpoints are complete or absent, wherever the process dies or the disk is full.  This program
// replaces the C library's calls that change files, counts them, and dies before any one of them.
// fsync() is only counted: what a process has written outlives it in any case.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <set>
#include <thread>

#include "spool/models/formats/checkpoint_mark.h"
#include "spool/models/formats/run_directory.h"
#include "spool/models/formats/safetensors.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace {

namespace fs = std::filesystem;

int changes_left = INT_MAX;
bool links_are_refused = false;  // as by exFAT
// Files and directories with changes that a power cut would lose.
std::set<fs::path> unsynced;
// Names under which something was published before it was synced.
std::set<fs::path> published_early;

void before_change() {
  if (changes_left-- == 0) ::kill(::getpid(), SIGKILL);
}

fs::path path_of(int descriptor) {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored);
}

void note_rename(const fs::path& from, const fs::path& to) {
  for (const fs::path& path : unsynced) {
    if (path.string().starts_with(from.string())) published_early.insert(to);
  }
  if (fs::is_symlink(from) && unsynced.contains(from.parent_path())) published_early.insert(to);
  unsynced.insert(to.parent_path());
}

}  // namespace

extern "C" {

ssize_t pwrite(int file, const void* bytes, size_t count, off_t begin) {
  before_change();
  unsynced.insert({path_of(file), path_of(file).parent_path()});
  return ::syscall(SYS_pwrite64, file, bytes, count, begin);
}

int fsync(int file) {
  before_change();
  unsynced.erase(path_of(file));
  return 0;
}

int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  before_change();
  note_rename(from, to);
  return static_cast<int>(::syscall(SYS_renameat2, from_at, from, to_at, to, flags));
}

int rename(const char* from, const char* to) noexcept {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int symlink(const char* target, const char* path) noexcept {
  if (links_are_refused) {
    errno = EPERM;
    return -1;
  }
  before_change();
  return static_cast<int>(::syscall(SYS_symlinkat, target, AT_FDCWD, path));
}

int unlinkat(int at, const char* path, int flags) noexcept {
  before_change();
  return static_cast<int>(::syscall(SYS_unlinkat, at, path, flags));
}

int mkdir(const char* path, mode_t mode) noexcept {
  before_change();
  unsynced.insert({path, fs::path(path).parent_path()});
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
}

namespace spool {
namespace {

using testing::contains;
using testing::error_of;
using testing::names_in;
using testing::TemporaryDirectory;

using Names = std::set<std::string>;

// A checkpoint of 256 KiB in four pieces; every byte is the step.
void fill_for(int64_t step, const fs::path& partial) {
  write_text_file_atomically(partial / "run.json", sentence("{\"step\": ", step, "}"));
  const std::vector<std::byte> piece(size_t{1} << 16, static_cast<std::byte>(step));
  const Metadata mark = metadata_of({.step = step, .run = "a run"});
  SafetensorsWriter file(partial / "model.safetensors", {{"x", {Shape{1 << 16}, DType::f32}}},
                         mark);
  for (size_t i = 0; i < 4; ++i) file.write(file.tensors()[0], i * piece.size(), piece);
  file.finish();
  SafetensorsWriter(partial / "optimizer.safetensors", {}, mark).finish();
}

// The step of a checkpoint; throws if anything is missing or wrong.
int64_t read_checkpoint(const fs::path& checkpoint) {
  const auto step = read_json(checkpoint / "run.json").member("step").integer<int64_t>();
  const SafetensorsReader file(checkpoint / "model.safetensors");
  std::vector<std::byte> bytes(file.tensors().at(0).spec.nbytes());
  file.read(file.tensors()[0], 0, bytes);
  const std::vector<std::byte> expected(bytes.size(), static_cast<std::byte>(step));
  check(marked_file(file.name()).mark->step == step, "metadata of another step");
  check(bytes == expected, "bytes of another step");
  return step;
}

// Expects that after a crash every checkpoint in the directory is complete.
void expect_whole(const fs::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with("step-")) {
      EXPECT_NO_THROW(read_checkpoint(directory / name)) << name;
    }
  }
  const auto latest = latest_checkpoint(directory);
  ASSERT_TRUE(latest);
  ASSERT_NO_THROW(read_checkpoint(*latest));
}

TEST(Crash, FilesAreSyncedBeforeTheyArePublished) {
  const TemporaryDirectory d;
  RunDirectory run(d.path() / "run", /*keep=*/9);
  for (int64_t step : {1, 2, 2}) {
    unsynced.clear();
    published_early.clear();
    run.write(step, [&](const fs::path& p) {
      fs::create_directory(p / "more");
      SafetensorsWriter(p / "more" / "x", {}).finish();
      fill_for(step, p);
    });
    EXPECT_EQ(published_early, std::set<fs::path>{});
    EXPECT_FALSE(unsynced.contains(run.path()));
  }
}

// For each change that writing a checkpoint makes, forks a child that is killed before it; returns
// the number of changes.
int crash_everywhere(const std::function<void(const fs::path&)>& prepare, int64_t step) {
  for (int changes = 0;; ++changes) {
    const TemporaryDirectory d;
    prepare(d.path());
    const pid_t child = ::fork();
    if (child == 0) {
      changes_left = changes;
      RunDirectory(d.path(), 1).write(step, [&](const fs::path& p) { fill_for(step, p); });
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    expect_whole(d.path());
    if (!WIFSIGNALED(status)) return changes;
    RunDirectory(d.path(), 1).write(9, [&](const fs::path& p) { fill_for(9, p); });
    expect_whole(d.path());
    EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000009"}));
    if (::testing::Test::HasFailure()) return changes;
  }
}

TEST(Crash, BeforeAnyChangeLeavesAWholeCheckpoint) {
  const auto write = [](const fs::path& run, int64_t step) {
    RunDirectory(run).write(step, [&](const fs::path& p) { fill_for(step, p); });
  };
  // A new step; the latest step again; a later step again, from a run resumed before it.
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 1); }, 2), 20);
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 1); }, 1), 20);
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 2), write(run, 1); }, 2), 20);
}

// Puts a copy of the latest checkpoint in the place of the link to it.
void copy_latest(const fs::path& run) {
  const fs::path latest = *latest_checkpoint(run);
  fs::remove(run / "latest");
  fs::copy(latest, run / "latest", fs::copy_options::recursive);
}

TEST(Crash, InACopyOfARunLeavesAWholeCheckpoint) {
  const auto write = [](const fs::path& run, int64_t step) {
    RunDirectory(run).write(step, [&](const fs::path& p) { fill_for(step, p); });
  };
  // Links that were followed; also with no other copy of the checkpoint; links that were lost.
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 1), copy_latest(run); }, 2), 20);
  EXPECT_GT(crash_everywhere(
                [&](const fs::path& run) {
                  write(run, 1), copy_latest(run), fs::remove_all(run / "step-000001");
                },
                2),
            20);
  EXPECT_GT(
      crash_everywhere(
          [&](const fs::path& run) { write(run, 1), write(run, 2), fs::remove(run / "latest"); },
          3),
      20);
}

TEST(Crash, WhereThereAreNoLinksLeavesAWholeCheckpoint) {
  const auto write = [](const fs::path& run, int64_t step) {
    RunDirectory(run).write(step, [&](const fs::path& p) { fill_for(step, p); });
  };
  links_are_refused = true;
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 1); }, 2), 20);
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 2), write(run, 1); }, 2), 20);
  EXPECT_GT(crash_everywhere([&](const fs::path& run) { write(run, 1), copy_latest(run); }, 2), 20);
  const TemporaryDirectory d;
  for (int64_t step : {1, 2}) {
    RunDirectory run(d.path());
    unsynced.clear();
    published_early.clear();
    run.write(step, [&](const fs::path& p) { fill_for(step, p); });
    EXPECT_EQ(published_early, std::set<fs::path>{});
    EXPECT_FALSE(unsynced.contains(run.path()));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(d.path() / "latest")));
  }
  links_are_refused = false;
  write(d.path(), 3);
  EXPECT_EQ(fs::read_symlink(d.path() / "latest"), "step-000003");
}

// Exit status of a child whose writes beyond `limit` bytes of a file fail, as on a full disk.
int exit_status_with_file_limit(size_t limit, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit bound = {limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &bound);
    const std::string error = error_of(work);
    ::_exit(error.empty() ? 0 : contains(error, ": cannot be written: File too large") ? 1 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Crash, OnAFullDiskLeavesThePreviousCheckpoint) {
  const TemporaryDirectory d;
  RunDirectory(d.path()).write(1, [](const fs::path& p) { fill_for(1, p); });
  const auto write_two = [&] {
    RunDirectory(d.path()).write(2, [](const fs::path& p) { fill_for(2, p); });
  };
  for (size_t limit : {0u, 5u, 100u, 70000u, (1u << 18) - 1}) {
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

TEST(Crash, AtAnyMomentLeavesAWholeCheckpoint) {
  const TemporaryDirectory d;
  RunDirectory(d.path()).write(0, [](const fs::path& p) { fill_for(0, p); });
  Random random(1);
  int partials = 0;
  for (int kill = 0; kill < 1000 && partials < 10; ++kill) {
    const pid_t child = ::fork();
    if (child == 0) write_without_end(d.path());
    std::this_thread::sleep_for(std::chrono::microseconds(random.next() % 30000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    for (const std::string& name : names_in(d.path())) partials += name.ends_with(".partial");
    expect_whole(d.path());
  }
  EXPECT_GE(partials, 10) << "the child was never killed in the middle";
  RunDirectory afterwards(d.path());
  for (const std::string& name : names_in(d.path())) EXPECT_FALSE(name.ends_with(".partial"));
}

}  // namespace
}  // namespace spool
