#include "spool/runtime/ranks/connections.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/timeout.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

// A connection to a socket of the abstract namespace, whose name the kernel chose.
sockaddr_un address_of(std::string_view name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), size_t{100}));
  return address;
}

// A boot of a machine and a network namespace, in which sockets have their names.
std::string this_machine() {
  std::string boot = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space = {};
  const ssize_t n = ::readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return boot + (n > 0 ? space.data() : "?");
}

// Each rank listens, calls the lower ones twice, and is called by the higher ones.
class Callers {
 public:
  Callers(int rank, int size) : rank_(rank) {
    all_.data.resize(static_cast<size_t>(size));
    all_.watch.resize(static_cast<size_t>(size));
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un own = {};
    own.sun_family = AF_UNIX;
    const socklen_t without_name = sizeof own.sun_family;  // the kernel finds one
    const bool listens = ::bind(*listener_, reinterpret_cast<sockaddr*>(&own), without_name) == 0 &&
                         ::listen(*listener_, /*backlog=*/1024) == 0;
    check(listens, "no Unix socket for the other ranks: ", std::strerror(errno));
  }

  std::string name() const {
    sockaddr_un own = {};
    socklen_t bytes = sizeof own;
    ::getsockname(*listener_, reinterpret_cast<sockaddr*>(&own), &bytes);
    return {own.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1};
  }

  void call(int r, const std::string& name) {
    const sockaddr_un address = address_of(name);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    for (const bool is_watch : {false, true}) {
      Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const std::array<int, 2> who = {rank_, is_watch};
      const bool is_there =
          ::connect(*socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
          ::send(*socket, who.data(), sizeof who, MSG_NOSIGNAL) == sizeof who;
      if (!is_there) {
        throw RankEnded(sentence("rank ", r, " disappeared as the ranks met"),
                        r == 0 && rank_ == 1 ? RankLoss::disappeared : RankLoss::another_tells);
      }
      keep(r, is_watch, std::move(socket));
    }
  }

  // A call that is no rank's is dropped.
  void answer(double until) {
    for (;;) {
      pollfd polled = {*listener_, POLLIN, 0};
      const double left = std::max(0.0, until - host_clock());
      const bool came = ::poll(&polled, 1, static_cast<int>(left * 1000)) > 0;
      if (!came) {
        throw RankEnded("a rank disappeared as the ranks met",
                        rank_ == 0 ? RankLoss::disappeared : RankLoss::another_tells);
      }
      Descriptor socket(::accept4(*listener_, nullptr, nullptr, SOCK_CLOEXEC));
      std::array<int, 2> who = {-1, 0};
      const timeval second = {1, 0};
      ::setsockopt(*socket, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
      const bool is_rank = ::recv(*socket, who.data(), sizeof who, MSG_WAITALL) == sizeof who &&
                           who[0] > rank_ && who[0] < static_cast<int>(all_.data.size());
      if (is_rank) return keep(who[0], who[1] != 0, std::move(socket));
    }
  }

  Connections take() { return std::move(all_); }

 private:
  void keep(int r, bool is_watch, Descriptor socket) {
    (is_watch ? all_.watch : all_.data)[static_cast<size_t>(r)] = std::move(socket);
  }

  int rank_;
  Descriptor listener_;
  Connections all_;
};

}  // namespace

Connections connect_ranks(const MeetingPlace& place, int rank, int size,
                          const MeetingPatience& patience) {
  Callers callers(rank, size);
  const std::string machine = this_machine();
  const auto all = meet(place, rank, size, callers.name() + "/" + machine, patience);
  for (size_t r = 0; r < all.size(); ++r) {
    check(all[r].substr(all[r].find('/') + 1) == machine, "ranks ", rank, " and ", r,
          " are on different machines, and between machines ranks of cpus need MPI: start them "
          "with mpirun, with a Spool that was built with MPI");
  }
  for (int r = 0; r < rank; ++r) {
    const std::string& said = all[static_cast<size_t>(r)];
    callers.call(r, said.substr(0, said.find('/')));
  }
  const double until = host_clock() + rank_timeout();
  for (int left = 2 * (size - 1 - rank); left > 0; --left) callers.answer(until);
  return callers.take();
}

}  // namespace spool
