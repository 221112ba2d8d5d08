#include "shared_budget.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace emulator {
namespace {

// Of the process, so that one that forked excludes its child.
void lock(int file, short kind) {
  struct flock all = {};
  all.l_type = kind;
  all.l_whence = SEEK_SET;
  while (::fcntl(file, F_SETLKW, &all) != 0 && errno == EINTR) {
  }
}

}  // namespace

SharedBudget& budget() {
  static SharedBudget all;
  return all;
}

SharedBudget::SharedBudget() {
  const char* path = std::getenv("EMULATOR_MEMORY");
  if (!path || !*path) return;
  file_ = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ >= 0) return;
  std::perror("EMULATOR_MEMORY");  // on its own it would hide the collisions it is there to show
  std::abort();
}

SharedBudget::~SharedBudget() {
  if (file_ >= 0) ::close(file_);
}

void SharedBudget::locked(const std::function<bool(std::vector<Share>&)>& change) {
  if (file_ < 0) {
    change(own_);
    return;
  }
  lock(file_, F_WRLCK);
  struct stat status = {};
  ::fstat(file_, &status);
  std::vector<Share> shares(static_cast<size_t>(status.st_size) / sizeof(Share));
  const size_t bytes = shares.size() * sizeof(Share);
  if (::pread(file_, shares.data(), bytes, 0) != static_cast<ssize_t>(bytes)) shares.clear();
  std::erase_if(shares, [](const Share& share) {
    return ::kill(static_cast<pid_t>(share.process), 0) != 0 && errno == ESRCH;
  });
  if (change(shares)) {
    const size_t left = shares.size() * sizeof(Share);
    const bool kept = ::pwrite(file_, shares.data(), left, 0) == static_cast<ssize_t>(left) &&
                      ::ftruncate(file_, static_cast<off_t>(left)) == 0;
    if (!kept) std::perror("EMULATOR_MEMORY");
  }
  lock(file_, F_UNLCK);
}

size_t SharedBudget::sum(const std::vector<Share>& shares, int device) {
  size_t all = 0;
  for (const Share& share : shares) all += share.bytes[device];
  return all;
}

size_t SharedBudget::used(int device) {
  size_t all = 0;
  locked([&](const std::vector<Share>& shares) {
    all = sum(shares, device);
    return false;
  });
  return all;
}

bool SharedBudget::take(int device, size_t bytes, size_t of) {
  bool fits = false;
  locked([&](std::vector<Share>& shares) {
    const size_t all = sum(shares, device);
    fits = all <= of && bytes <= of - all;
    if (!fits) return false;
    auto own = std::ranges::find(shares, long{::getpid()}, &Share::process);
    if (own == shares.end()) own = shares.insert(own, {.process = ::getpid(), .bytes = {}});
    own->bytes[device] += bytes;
    return true;
  });
  return fits;
}

void SharedBudget::give_back(int device, size_t bytes) {
  locked([&](std::vector<Share>& shares) {
    const auto own = std::ranges::find(shares, long{::getpid()}, &Share::process);
    if (own == shares.end()) return false;  // a fork's, of its parent's memory
    own->bytes[device] -= std::min(bytes, own->bytes[device]);
    return true;
  });
}

}  // namespace emulator
