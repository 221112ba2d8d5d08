// runs: threads
// Spill files: bytes written are read back, by every way of input and output, and failures are
// reported with the needed and the free bytes.

#include "spool/runtime/files/spill_file.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "spool/runtime/check.h"
#include "tests/runtime/environment.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::expect_error;
using testing::names_in;
using testing::TemporaryDirectory;

constexpr size_t page = SpillFile::alignment;
constexpr size_t mib = size_t{1} << 20;

class Memory {
 public:
  explicit Memory(size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(page, bytes)), &std::free), size_(bytes) {
    std::memset(data(), 0, bytes);
  }
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

  void fill(uint64_t seed) const {
    for (size_t i = 0; i < size_; i += sizeof(uint64_t)) {
      const uint64_t number = (i + seed) * 0x9E3779B97F4A7C15;  // all pages differ
      std::memcpy(data() + i, &number, sizeof(number));
    }
  }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
  size_t size_;
};

// SPOOL_IO for the length of a test; "" unsets it.
struct IoSetting : testing::EnvironmentVariable {
  explicit IoSetting(const std::string& value)
      : EnvironmentVariable("SPOOL_IO", value.empty() ? std::optional<std::string>() : value) {}
};

// A limit of this process, for the length of a test.
class Limit {
 public:
  Limit(__rlimit_resource resource, size_t value) : resource_(resource) {
    ::getrlimit(resource, &before_);
    rlimit limit = before_;
    limit.rlim_cur = value;
    ::setrlimit(resource, &limit);
  }
  ~Limit() { ::setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_ = {};
};

// The descriptor that the next opened file will have.
int next_descriptor() {
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  return next;
}

struct Piece {
  size_t offset, bytes;
};

Piece random_piece(std::mt19937_64& random, size_t size) {
  // Sizes of every magnitude: the system transfers some at once and others in several pieces.
  const size_t max_bytes = page << (random() % 12);
  const size_t bytes = std::min({(random() % max_bytes / page + 1) * page, 9 * mib, size});
  return {.offset = random() % ((size - bytes) / page + 1) * page, .bytes = bytes};
}

class EverySpillFile : public ::testing::TestWithParam<const char*> {
 protected:
  const IoSetting setting_{GetParam()};
  const TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Io, EverySpillFile, ::testing::Values("", "sync", "cached"),
                         [](const auto& way) {
                           const std::string name = way.param;
                           return name.empty() ? "usual" : name;
                         });

TEST_P(EverySpillFile, ReadsBackWhatWasWritten) {
  SpillFile file(directory_.path(), 40 * mib);
  EXPECT_EQ(file.size(), 40 * mib);
  const Memory expected(file.size()), found(file.size());
  expected.fill(/*seed=*/1);
  file.write(0, expected.data(), file.size());
  std::mt19937_64 random(/*seed=*/2);
  for (uint64_t i = 0; i < 60; ++i) {
    const Piece w = random_piece(random, file.size()), r = random_piece(random, file.size());
    const Memory piece(w.bytes);
    piece.fill(/*seed=*/3 + i);
    std::memcpy(expected.data() + w.offset, piece.data(), w.bytes);
    file.write(w.offset, piece.data(), w.bytes);
    file.read(r.offset, found.data(), r.bytes);
    ASSERT_EQ(std::memcmp(found.data(), expected.data() + r.offset, r.bytes), 0)
        << r.bytes << " bytes at " << r.offset;
  }
  file.read(0, found.data(), file.size());
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), file.size()), 0);
  file.write(file.size(), expected.data(), 0);
  file.read(0, found.data(), 0);
}

TEST_P(EverySpillFile, ReadsAndWritesAtTheSameTime) {
  constexpr size_t half = 10 * mib;
  SpillFile file(directory_.path(), 2 * half);
  const Memory old(half), fresh(half), found(half);
  old.fill(/*seed=*/1);
  file.write(0, old.data(), half);
  constexpr int times = 12;
  std::thread writer([&] {
    for (int i = 0; i < times; ++i) {
      fresh.fill(/*seed=*/static_cast<uint64_t>(i));
      file.write(half, fresh.data(), half);
    }
  });
  int wrong = 0;
  for (int i = 0; i < times; ++i) {
    std::memset(found.data(), 0, half);
    file.read(0, found.data(), half);
    wrong += std::memcmp(found.data(), old.data(), half) != 0;
  }
  writer.join();
  EXPECT_EQ(wrong, 0);
  file.read(half, found.data(), half);
  EXPECT_EQ(std::memcmp(found.data(), fresh.data(), half), 0);
}

TEST_P(EverySpillFile, SerializesWriters) {
  SpillFile file(directory_.path(), 16 * mib);
  const Memory expected(file.size()), found(file.size());
  expected.fill(/*seed=*/1);
  std::vector<std::thread> threads;
  for (size_t begin = 0; begin < file.size(); begin += 4 * mib) {
    threads.emplace_back([&, begin] {
      for (size_t i = begin; i < begin + 4 * mib; i += mib / 2) {
        file.write(i, expected.data() + i, mib / 2);
        file.read(i, found.data() + i, mib / 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), file.size()), 0);
}

TEST_P(EverySpillFile, LeavesNoNameInItsDirectory) {
  {
    SpillFile file(directory_.path(), mib);
    EXPECT_EQ(names_in(directory_.path()), std::set<std::string>{});
    const Memory memory(mib);
    file.write(0, memory.data(), mib);
    EXPECT_EQ(names_in(directory_.path()), std::set<std::string>{});
  }
  EXPECT_EQ(names_in(directory_.path()), std::set<std::string>{});
}

TEST_P(EverySpillFile, NamesTheLimitOnFileSizes) {
  SpillFile file(directory_.path(), 8 * mib);
  const Memory memory(file.size()), found(file.size());
  memory.fill(/*seed=*/1);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  for (const size_t limit : {5 * mib, 5 * mib + 1000}) {
    const Limit small(RLIMIT_FSIZE, limit);
    const ErrorFields fields = expect_error(
        ErrorKind::file, {"8.00 MiB at byte 0", "cannot be written", "5.00 MiB", "'ulimit -f'"},
        [&] { file.write(0, memory.data(), file.size()); });
    EXPECT_EQ(fields.file, directory_.path().string());
    EXPECT_EQ(fields.needed, file.size());
    expect_error(ErrorKind::file, {"ulimit -f"}, [&] { SpillFile(directory_.path(), 8 * mib); });
    file.write(0, memory.data(), 4 * mib);
  }
  std::signal(SIGXFSZ, before);
  file.write(4 * mib, memory.data() + 4 * mib, 4 * mib);
  file.read(0, found.data(), file.size());
  EXPECT_EQ(std::memcmp(found.data(), memory.data(), file.size()), 0);
}

// A disk of 4 MiB, where the system allows one.
class SmallDisk {
 public:
  explicit SmallDisk(fs::path path) : path_(std::move(path)) {
    fs::create_directory(path_);
    mounted_ = ::mount("spool", path_.c_str(), "tmpfs", 0, "size=4m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount(path_.c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  bool mounted_ = false;
};

TEST_P(EverySpillFile, ReservesItsSpace) {
  const SmallDisk disk(directory_.path() / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a file system";
  const ErrorFields fields = expect_error(
      ErrorKind::file, {disk.path().native(), "a spill file of 8.00 MiB", "4.00 MiB are free"},
      [&] { SpillFile(disk.path(), 8 * mib); });
  EXPECT_EQ(fields.needed, 8 * mib);
  EXPECT_EQ(fields.capacity, 4 * mib);
  EXPECT_EQ(fields.file, disk.path().string());
  {
    SpillFile file(disk.path(), 3 * mib);
    EXPECT_EQ(disk_free(disk.path()), mib);
    const Memory memory(3 * mib), found(3 * mib);
    memory.fill(/*seed=*/1);
    file.write(0, memory.data(), 3 * mib);
    file.read(0, found.data(), 3 * mib);
    EXPECT_EQ(std::memcmp(found.data(), memory.data(), 3 * mib), 0);
    EXPECT_EQ(disk_free(disk.path()), mib);
  }
  EXPECT_EQ(disk_free(disk.path()), 4 * mib);
}

TEST_P(EverySpillFile, ReportsADiskThatFillsUpDuringAWrite) {
  const SmallDisk disk(directory_.path() / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a file system";
  const int descriptor = next_descriptor();
  SpillFile file(disk.path(), 3 * mib);
  // Another file takes the reserved space, as on a disk that promises more than it has.
  ASSERT_EQ(::fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * mib, mib), 0);
  {
    const int other = ::open((disk.path() / "other").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(::fallocate(other, 0, 0, 2 * mib - 16 * page), 0);
    ::close(other);
  }
  const Memory memory(3 * mib), found(3 * mib);
  memory.fill(/*seed=*/1);
  const ErrorFields fields =
      expect_error(ErrorKind::file,
                   {disk.path().native(), "3.00 MiB at byte 0", "cannot be written", " are free"},
                   [&] { file.write(0, memory.data(), 3 * mib); });
  EXPECT_EQ(fields.needed, 3 * mib);
  EXPECT_EQ(fields.file, disk.path().string());

  fs::remove(disk.path() / "other");
  file.write(0, memory.data(), 3 * mib);
  file.read(0, found.data(), 3 * mib);
  EXPECT_EQ(std::memcmp(found.data(), memory.data(), 3 * mib), 0);
}

TEST_P(EverySpillFile, RefusesUnalignedAndOutsideTransfers) {
  SpillFile file(directory_.path(), mib);
  const Memory memory(2 * mib);
  std::byte* data = memory.data();
  const auto expect_refused = [&](std::initializer_list<std::string_view> words, size_t offset,
                                  std::byte* from, size_t bytes) {
    expect_error(ErrorKind::invalid, words, [&] { file.write(offset, from, bytes); });
    expect_error(ErrorKind::invalid, words, [&] { file.read(offset, from, bytes); });
  };
  expect_refused({"4096 bytes at byte 100", "multiples of 4096"}, 100, data, page);
  expect_refused({"100 bytes", "multiples of 4096"}, 0, data, 100);
  expect_refused({"memory", "multiple of 4096"}, 0, data + 512, page);
  expect_refused({"4096 bytes at byte 1048576", "has 1048576"}, mib, data, page);
  expect_refused({"has 1048576"}, 0, data, 2 * mib);
  expect_refused({"has 1048576"}, size_t{0} - page, data, 2 * page);
  expect_refused({"has 1048576"}, page, data, size_t{0} - page);
  for (const size_t bytes : {size_t{0}, page + 1}) {
    expect_error(ErrorKind::invalid, {"positive multiple of 4096"},
                 [&] { SpillFile(directory_.path(), bytes); });
  }
}

TEST(SpillFile, DescribesItsInputAndOutput) {
  const TemporaryDirectory d;
  {
    const IoSetting setting("cached");
    EXPECT_EQ(SpillFile(d.path(), page).description(), "pread/pwrite, page cache");
  }
  {
    const IoSetting setting("sync");
    EXPECT_TRUE(contains(SpillFile(d.path(), page).description(), "pread/pwrite, "));
  }
  {
    const IoSetting setting("fast");
    expect_error(ErrorKind::invalid, {"SPOOL_IO", "'fast'", "sync", "cached"},
                 [&] { SpillFile(d.path(), page); });
  }
}

// The trial writes a page of zeros.
TEST(SpillFile, IsTriedWithTheMemoryThatItIsFor) {
  const TemporaryDirectory d;
  const Memory memory(page);
  memory.fill(/*seed=*/1);
  const SpillFile file(d.path(), page, memory.data());
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + page,
                          [](std::byte b) { return b == std::byte{0}; }));
}

TEST(SpillFile, WorksWithoutRings) {
  const TemporaryDirectory d;
  const Limit files(RLIMIT_NOFILE,
                    static_cast<size_t>(next_descriptor()) + 1);  // the file, and no ring
  SpillFile file(d.path(), 4 * mib);
  EXPECT_TRUE(contains(file.description(), "pread/pwrite, ")) << file.description();
  const Memory memory(4 * mib), found(4 * mib);
  memory.fill(/*seed=*/1);
  file.write(0, memory.data(), 4 * mib);
  file.read(0, found.data(), 4 * mib);
  EXPECT_EQ(std::memcmp(found.data(), memory.data(), 4 * mib), 0);
}

TEST(SpillFile, ReportsAnUnusableDirectory) {
  const TemporaryDirectory d;
  const fs::path missing = d.path() / "missing", file = d.file("file", "x");
  const auto no_such = {std::string_view(missing.native()), std::string_view("no such directory")};
  expect_error(ErrorKind::file, no_such, [&] { SpillFile(missing, page); });
  expect_error(ErrorKind::file, no_such, [&] { disk_free(missing); });
  expect_error(ErrorKind::file, {file.native(), "not a directory"}, [&] { SpillFile(file, page); });
  expect_error(ErrorKind::file, {"/proc: ", "spill file"}, [&] { SpillFile("/proc", page); });
}

TEST(SpillFile, ReportsADiskThatIsTooSmall) {
  const TemporaryDirectory d;
  const size_t exabyte = size_t{1} << 60;
  for (const size_t bytes : {exabyte, size_t{0} - page}) {
    const ErrorFields fields =
        expect_error(ErrorKind::file, {" are free"}, [&] { SpillFile(d.path(), bytes); });
    EXPECT_EQ(fields.needed, bytes);
    EXPECT_GT(fields.capacity, 0u);
    EXPECT_EQ(fields.file, d.path().string());
  }
  EXPECT_EQ(names_in(d.path()), std::set<std::string>{});
}

}  // namespace
}  // namespace spool
