// The directory of a run and the checkpoints in it.

#include "spool/models/formats/run_directory.h"

#include "spool/models/formats/checkpoint_mark.h"

#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::content_of;
using testing::error_of;
using testing::expect_error;
using testing::names_in;
using testing::TemporaryDirectory;

using Names = std::set<std::string>;

auto writing(const std::string& text) {
  return [text](const fs::path& partial) { write_text_file_atomically(partial / "state", text); };
}

// Writes all files of a checkpoint.
auto whole(int64_t step) {
  return [step](const fs::path& partial) {
    const Metadata mark = metadata_of({.step = step, .run = "a run"});
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      SafetensorsWriter file(partial / name, {{"x", {Shape{4}, DType::f32}}}, mark);
      file.write(file.tensors()[0], 0, std::vector<std::byte>(16));
      file.finish();
    }
    write_text_file_atomically(partial / "run.json", "{}");
  };
}

TEST(RunDirectory, LinksTheLatestCheckpoint) {
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

TEST(RunDirectory, KeepsTheNewestCheckpointsAndForeignFiles) {
  const TemporaryDirectory d;
  d.file("step-000001/precious", "not ours");
  d.file("step-7/precious", "not ours");
  d.file("step-000002", "a file");
  RunDirectory run(d.path(), /*keep=*/3);
  for (int64_t step : {10, 20, 30, 40, 50}) run.write(step, writing("x"));
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "latest", "step-000001", "step-000002", "step-7",
                                       "step-000030", "step-000040", "step-000050"}));
  expect_error(ErrorKind::file, {"step-000001", "not written by Spool"},
               [&] { run.write(1, writing("x")); });
  EXPECT_EQ(names_in(d.path() / "step-000001"), Names{"precious"});
  EXPECT_EQ(run.latest(), d.path() / "step-000050");
}

TEST(RunDirectory, NeverRemovesTheLatestCheckpoint) {
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

TEST(RunDirectory, LeavesNothingOfACheckpointThatFails) {
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

TEST(RunDirectory, TellsErrorsOfTheFileSystemByTheirFile) {
  const TemporaryDirectory d;
  RunDirectory run(d.path());
  expect_error(ErrorKind::file, {"absent: cannot be written: No such file or directory"}, [&] {
    run.write(1, [](const fs::path& p) { fs::rename(p / "absent", p / "present"); });
  });
  EXPECT_EQ(names_in(d.path()), Names{".lock"});
}

TEST(RunDirectory, RemovesPartialCheckpointsOfACrash) {
  const TemporaryDirectory d;
  d.file(".step-000007.partial/model", "half");
  d.file(".step-000003.old.partial/model", "half");
  fs::create_symlink("step-000007", d.path() / ".latest.partial");
  d.file(".hidden", "not a partial");
  RunDirectory run(d.path());
  EXPECT_EQ(names_in(d.path()), (Names{".hidden", ".lock"}));
}

TEST(RunDirectory, ServesOneRunAtATime) {
  const TemporaryDirectory d;
  {
    const RunDirectory first(d.path());
    expect_error(ErrorKind::file, {"another run"}, [&] { RunDirectory second(d.path()); });
  }
  EXPECT_NO_THROW(RunDirectory third(d.path()));
}

TEST(RunDirectory, RefusesAPathThatCannotBeADirectory) {
  const TemporaryDirectory d;
  const fs::path file = d.file("file", "text");
  const auto refused = [](const fs::path& path) {
    expect_error(ErrorKind::file, {path.string()}, [&] { RunDirectory run(path); });
  };
  refused(file);
  refused(file / "below");
  refused("/proc/spool");
}

TEST(RunDirectory, RefusesToKeepNoCheckpointAndNegativeSteps) {
  const TemporaryDirectory d;
  expect_error(ErrorKind::invalid, {"0 checkpoints", "at least one"},
               [&] { RunDirectory run(d.path(), /*keep=*/0); });
  expect_error(ErrorKind::invalid, {"step", "-1"},
               [&] { RunDirectory(d.path()).write(-1, writing("x")); });
}

TEST(RunDirectory, LinksTheBestCheckpointAndReplacesNothingElse) {
  const TemporaryDirectory d;
  check_best_link(d.path() / "none");
  RunDirectory run(d.path(), /*keep=*/1);
  EXPECT_FALSE(run.point_best_to(10));
  for (int64_t step : {10, 20, 30}) {
    check_best_link(d.path());
    run.write(step, writing("x"));
    const auto best = step < 30 ? run.point_best_to(step) : std::nullopt;
    EXPECT_EQ(best.has_value(), step < 30);
  }
  EXPECT_EQ(fs::read_symlink(d.path() / "best"), "step-000020");
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "best", "latest", "step-000020", "step-000030"}));
  fs::remove(d.path() / "best");
  d.file("best", "");
  check_best_link(d.path());
  d.file("best", "mine");
  const auto refuses = [&](auto&& what) {
    expect_error(ErrorKind::file, {"best: is not a link to a checkpoint"}, what);
  };
  refuses([&] { check_best_link(d.path()); });
  refuses([&] { run.point_best_to(30); });
  EXPECT_EQ(content_of(d.path() / "best"), "mine");
}

TEST(RunDirectory, RefusesALatestLinkThatNamesNoCheckpoint) {
  const TemporaryDirectory d;
  EXPECT_FALSE(latest_checkpoint(d.path()));
  EXPECT_FALSE(latest_checkpoint(d.path() / "missing"));
  fs::create_directory(d.path() / "elsewhere");
  for (const char* target : {"step-000100", "elsewhere", "../step-000100"}) {
    fs::remove(d.path() / "latest");
    fs::create_symlink(target, d.path() / "latest");
    expect_error(ErrorKind::file, {"latest", target, "no such checkpoint"},
                 [&] { latest_checkpoint(d.path()); });
  }
  fs::remove(d.path() / "latest");
  for (const char* name :
       {"step-000100", "step-000100\n", "mine", "../step-000100", "elsewhere\n"}) {
    d.file("latest", name);
    expect_error(ErrorKind::file, {"latest: names", "no such checkpoint"},
                 [&] { latest_checkpoint(d.path()); });
  }
  for (const std::string& other : {std::string(" \n"), std::string(1000, 'x')}) {
    d.file("latest", other);
    expect_error(ErrorKind::file, {"latest: is neither a link", "a file with the name"},
                 [&] { latest_checkpoint(d.path()); });
  }
  fs::remove(d.path() / "latest");
  d.file("latest/precious", "not ours");
  expect_error(ErrorKind::file, {"latest: is neither a link", "a copy"},
               [&] { latest_checkpoint(d.path()); });
  expect_error(ErrorKind::file, {"latest"}, [&] { RunDirectory(d.path()).write(1, whole(1)); });
  EXPECT_EQ(content_of(d.path() / "latest" / "precious"), "not ours");
}

TEST(RunDirectory, FilesMayHaveTheNamesThatLinksHave) {
  const TemporaryDirectory d;
  RunDirectory(d.path(), /*keep=*/9).write(10, whole(10));
  for (int64_t step : {20, 30, 40}) RunDirectory(d.path(), /*keep=*/9).write(step, whole(step));
  fs::remove(d.path() / "latest");
  for (const char* text : {"step-000030", "step-000030\n", "step-000030\r\n"}) {
    d.file("latest", text);
    EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "step-000030");
  }
  d.file("best", "step-000010\n");
  check_best_link(d.path());
  RunDirectory run(d.path(), /*keep=*/1);
  run.write(50, whole(50));
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "best", "latest", "step-000010", "step-000050"}));
  EXPECT_EQ(run.latest(), d.path() / "step-000050");
  EXPECT_TRUE(run.point_best_to(50));
  EXPECT_EQ(fs::read_symlink(d.path() / "best"), "step-000050");
}

TEST(RunDirectory, FoldersMayBeWhereLinksWere) {
  const TemporaryDirectory d;
  const auto become_folder = [&](const char* link) {
    const fs::path target = fs::canonical(d.path() / link);
    fs::remove(d.path() / link);
    fs::copy(target, d.path() / link, fs::copy_options::recursive);
  };
  RunDirectory(d.path(), /*keep=*/9).write(10, whole(10));
  RunDirectory(d.path(), /*keep=*/9).point_best_to(10);
  RunDirectory(d.path(), /*keep=*/9).write(20, whole(20));
  become_folder("latest");
  become_folder("best");
  EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "latest");
  check_best_link(d.path());
  fs::remove_all(d.path() / "step-000020");                    // the folder is the only copy
  fs::remove(d.path() / "step-000010/optimizer.safetensors");  // and the only complete one
  RunDirectory run(d.path(), /*keep=*/1);
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "best", "latest", "step-000010", "step-000020"}));
  EXPECT_EQ(fs::read_symlink(d.path() / "latest"), "step-000020");
  EXPECT_EQ(fs::read_symlink(d.path() / "best"), "step-000010");
  EXPECT_TRUE(fs::exists(d.path() / "step-000010/optimizer.safetensors"));
  run.write(30, whole(30));
  EXPECT_EQ(names_in(d.path()), (Names{".lock", "best", "latest", "step-000010", "step-000030"}));
}

TEST(RunDirectory, WithoutALinkItsLatestCheckpointIsTheNewestWholeOne) {
  const TemporaryDirectory d;
  for (int64_t step : {10, 20, 30}) RunDirectory(d.path(), /*keep=*/9).write(step, whole(step));
  d.file("step-000090/model.safetensors", "not ours");
  d.file("latest.txt", "nothing");
  fs::remove(d.path() / "latest");
  EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "step-000030");
  d.file("latest", "");
  EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "step-000030");
  fs::resize_file(d.path() / "step-000030/model.safetensors", 70);
  EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "step-000020");
  fs::remove(d.path() / "step-000020/optimizer.safetensors");
  EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "step-000010");
  // Its marker is hidden, and a copy may lack it.
  fs::remove(d.path() / "step-000010/.spool");
  EXPECT_EQ(latest_checkpoint(d.path()), d.path() / "step-000010");
  fs::remove(d.path() / "latest");
  RunDirectory run(d.path(), /*keep=*/1);
  run.write(40, whole(40));
  EXPECT_EQ(names_in(d.path()),
            (Names{".lock", "latest", "latest.txt", "step-000040", "step-000090"}));
  fs::remove(d.path() / "latest");
  fs::remove(d.path() / "step-000040/run.json");
  EXPECT_EQ(latest_checkpoint(d.path()), std::nullopt);
}

}  // namespace
}  // namespace spool
