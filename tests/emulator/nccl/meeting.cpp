#include "meeting.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <random>

#include "../text.h"

namespace emulator::nccl {

// Begins as zeros.
struct Meeting::Shared {
  uint64_t nonce;
  std::atomic<uint32_t> turn;
  std::atomic<int32_t> ranks;
  Member members[max_ranks];
};

namespace {

constexpr const char* file_name = "ranks of emulated NCCL";

// Behind what ranks say of themselves each has a part of the file, of which only what it uses is
// there.
constexpr size_t first_part = size_t{1} << 30, part_bytes = size_t{1} << 36,
                 first_mailbox = part_bytes / 2;
static_assert(first_mailbox + max_ranks * Meeting::mailbox_bytes <= part_bytes);

off_t part_of(int rank, size_t offset) {
  return static_cast<off_t>(first_part + part_bytes * static_cast<size_t>(rank) + offset);
}

// Moves all of a range by calls that each move some of what is left.
void move_all(size_t bytes, const std::function<ssize_t(size_t done)>& move) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) throw Error(sentence("a rank's bytes do not move: ", std::strerror(errno)));
    done += static_cast<size_t>(moved);
  }
}

}  // namespace

Meeting::Meeting(int file, Place place) : file_(file), place_(place) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) {
    ::close(file);
    throw Error(sentence("ranks cannot meet: ", std::strerror(errno)));
  }
  shared_ = static_cast<Shared*>(memory);
}

Meeting::~Meeting() {
  ::munmap(shared_, sizeof(Shared));
  ::close(file_);
}

std::shared_ptr<Meeting> Meeting::make() {
  static_assert(sizeof(Shared) <= first_part);
  const int file = ::memfd_create(file_name, MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) {
    throw Error(sentence("ranks cannot meet: ", std::strerror(errno)));
  }
  std::random_device random;
  const uint64_t nonce = uint64_t{random()} << 32 | random();
  std::shared_ptr<Meeting> made(
      new Meeting(file, {.process = ::getpid(), .descriptor = file, .nonce = nonce}));
  made->shared_->nonce = nonce;
  return made;
}

std::shared_ptr<Meeting> Meeting::open(const Place& place) {
  const auto path = sentence("/proc/", place.process, "/fd/", place.descriptor);
  char name[64] = {};
  const bool is_there = ::readlink(path.c_str(), name, sizeof name - 1) > 0;
  const int file = is_there && std::strstr(name, file_name) != nullptr
                       ? ::open(path.c_str(), O_RDWR | O_CLOEXEC)
                       : -1;
  if (file < 0) throw Error("the process that made the unique id has ended, or it is none");
  std::shared_ptr<Meeting> opened(new Meeting(file, place));
  if (opened->shared_->nonce == place.nonce) return opened;
  throw Error("the unique id is none that ncclGetUniqueId gave");
}

void Meeting::join(int rank, int ranks, int gpu) {
  int32_t others = 0;
  if (!shared_->ranks.compare_exchange_strong(others, ranks) && others != ranks) {
    throw Error(sentence("rank ", rank, " says ", ranks, " ranks, and another ", others));
  }
  Member& own = member(rank);
  own.gpu = gpu;
  int32_t none = 0;
  if (!own.process.compare_exchange_strong(none, ::getpid())) {
    throw Error(sentence("two say that they are rank ", rank));
  }
  tell();
}

Member& Meeting::member(int rank) const { return shared_->members[rank]; }

uint32_t Meeting::turn() const { return shared_->turn.load(); }

void Meeting::wait(uint32_t turn) const {
  const timespec while_none_tells{.tv_sec = 0, .tv_nsec = 20'000'000};
  ::syscall(SYS_futex, &shared_->turn, FUTEX_WAIT, turn, &while_none_tells, nullptr, 0);
}

void Meeting::tell() const {
  ++shared_->turn;
  ::syscall(SYS_futex, &shared_->turn, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Meeting::give(int rank, size_t offset, const void* from, size_t bytes) const {
  move_all(bytes, [&](size_t done) {
    return ::pwrite(file_, static_cast<const std::byte*>(from) + done, bytes - done,
                    part_of(rank, offset + done));
  });
}

size_t Meeting::mailbox(int peer) {
  return first_mailbox + mailbox_bytes * static_cast<size_t>(peer);
}

void Meeting::take(int rank, size_t offset, void* to, size_t bytes) const {
  move_all(bytes, [&](size_t done) {
    return ::pread(file_, static_cast<std::byte*>(to) + done, bytes - done,
                   part_of(rank, offset + done));
  });
}

}  // namespace emulator::nccl
