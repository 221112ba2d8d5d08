#include "spool/runtime/ranks/sockets.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <string_view>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/descriptor.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

constexpr size_t largest_piece = size_t{1} << 20;

double socket_clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Before the bytes of a message.
struct MessageHead {
  std::array<char, 48> name = {};
  uint64_t index = 0, count = 0;  // of the messages to this rank in this exchange
  uint64_t bytes = 0;
};

MessageHead head_of(const char* name) {
  MessageHead head;
  std::strncpy(head.name.data(), name, head.name.size() - 1);
  return head;
}

// A stretch of memory on its way.
struct Part {
  std::byte* data;
  size_t bytes;
};

// The connections of a pair: one for messages, and one for why the other ends.
struct Peer {
  Descriptor data, end;
  std::vector<MessageHead> out_heads;
  std::deque<Part> out;
  MessageHead in_head;
  std::vector<Message> in;
  size_t in_index = 0, in_bytes = 0;  // those taken, with the head's

  bool waits() const { return !out.empty() || in_index < in.size(); }
};

bool is_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

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

class SocketRanks final : public Communicator {
 public:
  SocketRanks(const MeetingPlace& place, int rank, int size, const MeetingPatience& patience)
      : Communicator(rank, size), peers_(static_cast<size_t>(size)) {
    const Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un own = {};
    own.sun_family = AF_UNIX;
    socklen_t bytes = sizeof own.sun_family;  // without a name: the kernel finds one
    const auto at = reinterpret_cast<sockaddr*>(&own);
    check(::bind(*listener, at, bytes) == 0 && ::listen(*listener, 1024) == 0,
          "no Unix socket for the other ranks: ", std::strerror(errno));
    bytes = sizeof own;
    ::getsockname(*listener, at, &bytes);
    const std::string name(own.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1);
    const std::string machine = this_machine();
    const auto all = meet(place, rank, size, name + "/" + machine, patience);
    for (size_t r = 0; r < all.size(); ++r) {
      check(all[r].substr(all[r].find('/') + 1) == machine, "ranks ", rank, " and ", r,
            " are on different machines, and between machines ranks of cpus need MPI: start them "
            "with mpirun, with a Spool that was built with MPI");
    }
    for (int r = 0; r < rank; ++r) call(r, all[static_cast<size_t>(r)]);
    const double until = socket_clock() + rank_timeout();
    for (int left = 2 * (size - 1 - rank); left > 0; --left) answer(*listener, until);
  }
  const char* kind() const override { return "sockets"; }

 private:
  void call(int r, const std::string& said) {
    const std::string name = said.substr(0, said.find('/'));
    const sockaddr_un address = address_of(name);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    for (const bool is_end : {false, true}) {
      Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const std::array<int, 2> who = {rank(), is_end};
      const bool is_there =
          ::connect(*socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
          ::send(*socket, who.data(), sizeof who, MSG_NOSIGNAL) == sizeof who;
      if (!is_there) throw RankEnded(sentence("rank ", r, " disappeared as the ranks met"));
      keep(r, is_end, std::move(socket));
    }
  }

  void answer(int listener, double until) {
    pollfd polled = {listener, POLLIN, 0};
    const double left = std::max(0.0, until - socket_clock());
    const bool came = ::poll(&polled, 1, static_cast<int>(left * 1000)) > 0;
    if (!came) throw RankEnded("a rank disappeared as the ranks met");
    Descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    std::array<int, 2> who = {-1, 0};
    const timeval second = {1, 0};
    ::setsockopt(*socket, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    const bool is_rank = ::recv(*socket, who.data(), sizeof who, MSG_WAITALL) == sizeof who &&
                         who[0] > rank() && who[0] < size();
    if (!is_rank) throw RankEnded("a rank disappeared as the ranks met");
    keep(who[0], who[1] != 0, std::move(socket));
  }

  void keep(int r, bool is_end, Descriptor socket) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    (is_end ? peer.end : peer.data) = std::move(socket);
  }

  void end_others(const std::string& why) override {
    for (const Peer& peer : peers_) {
      if (*peer.end < 0) continue;
      ::send(*peer.end, why.data(), std::min(why.size(), size_t{4096}),
             MSG_NOSIGNAL | MSG_DONTWAIT);
      ::shutdown(*peer.end, SHUT_WR);
    }
  }

  void move(const char* name, const Messages& out, const Messages& in) override {
    prepare(name, out, in);
    double last = socket_clock();
    while (waiting()) {
      wait(name);
      bool moved = false;
      for (int r = 0; r < size(); ++r) moved |= r != rank() && step(name, r);
      if (moved) last = socket_clock();
      if (socket_clock() - last < rank_timeout()) continue;
      std::string absent;
      for (int r = 0; r < size(); ++r) {
        if (peers_[static_cast<size_t>(r)].waits()) {
          absent += sentence(absent.empty() ? "rank " : ", rank ", r);
        }
      }
      throw RankEnded(sentence(absent, " did not come to the exchange '", name, "' within ",
                               rank_timeout(), " s"));
    }
  }

  void prepare(const char* name, const Messages& out, const Messages& in) {
    std::deque<Part> own;
    for (Peer& peer : peers_) {
      peer.out_heads.clear();
      peer.out.clear();
      peer.in.clear();
      peer.in_index = peer.in_bytes = 0;
    }
    for (const Message& m : out) {
      Peer& peer = peers_[static_cast<size_t>(m.peer)];
      if (m.peer == rank()) own.push_back({m.data, m.bytes});
      if (m.peer == rank()) continue;
      MessageHead head = head_of(name);
      head.index = peer.out_heads.size();
      head.bytes = m.bytes;
      peer.out_heads.push_back(head);
      peer.out.push_back({m.data, m.bytes});
    }
    for (const Message& m : in) {
      if (m.peer != rank()) peers_[static_cast<size_t>(m.peer)].in.push_back(m);
      if (m.peer != rank()) continue;
      check(!own.empty() && own.front().bytes == m.bytes, "exchange '", name, "': rank ", rank(),
            " gives rank ", rank(), " other messages than that one takes");
      if (m.bytes > 0) std::memcpy(m.data, own.front().data, m.bytes);
      own.pop_front();
    }
    for (Peer& peer : peers_) add_heads(peer);
  }

  static void add_heads(Peer& peer) {
    std::deque<Part> parts;
    for (size_t i = 0; i < peer.out_heads.size(); ++i) {
      MessageHead& head = peer.out_heads[i];
      head.count = peer.out_heads.size();
      parts.push_back({reinterpret_cast<std::byte*>(&head), sizeof head});
      if (peer.out[i].bytes > 0) parts.push_back(peer.out[i]);
    }
    peer.out = std::move(parts);
  }

  bool waiting() const {
    return std::ranges::any_of(peers_, [](const Peer& peer) { return peer.waits(); });
  }

  // Returns when a connection is ready, and throws what another rank says as it ends.
  void wait(const char* name) {
    std::vector<pollfd> polled;
    for (const Peer& peer : peers_) {
      const bool takes = peer.in_index < peer.in.size();
      const int events = (peer.out.empty() ? 0 : POLLOUT) | (takes ? POLLIN : 0);
      polled.push_back({peer.waits() ? *peer.data : -1, static_cast<short>(events), 0});
    }
    for (const Peer& peer : peers_) polled.push_back({*peer.end, POLLIN, 0});
    ::poll(polled.data(), polled.size(), /*ms=*/100);
    for (size_t r = 0; r < peers_.size(); ++r) {
      if (polled[peers_.size() + r].revents) hear_end(name, r);
    }
  }

  void hear_end(const char* name, size_t r) {
    std::array<char, 4097> why = {};
    const ssize_t n = ::recv(*peers_[r].end, why.data(), why.size() - 1, MSG_DONTWAIT);
    if (n < 0 && is_again()) return;
    if (n > 0) throw RankEnded(std::string(why.data(), static_cast<size_t>(n)));
    peers_[r].end = {};  // what it sent before may still come
    if (!peers_[r].out.empty()) throw_disappeared(name, static_cast<int>(r));
  }

  [[noreturn]] void throw_disappeared(const char* name, int r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    if (*peer.end >= 0) hear_end(name, static_cast<size_t>(r));
    throw RankEnded(sentence("rank ", r, " disappeared at the exchange '", name, "'"));
  }

  // Sends and takes a piece; whether bytes moved.
  bool step(const char* name, int r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    bool moved = false;
    if (!peer.out.empty()) {
      Part& part = peer.out.front();
      const ssize_t n = ::send(*peer.data, part.data, std::min(part.bytes, largest_piece),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && !is_again()) throw_disappeared(name, r);
      moved = n > 0;
      part.data += std::max<ssize_t>(n, 0);
      part.bytes -= static_cast<size_t>(std::max<ssize_t>(n, 0));
      if (part.bytes == 0) peer.out.pop_front();
    }
    return take(name, r) || moved;
  }

  bool take(const char* name, int r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    if (peer.in_index == peer.in.size()) return false;
    const Message& to = peer.in[peer.in_index];
    constexpr size_t head_bytes = sizeof(MessageHead);
    const bool in_head = peer.in_bytes < head_bytes;
    std::byte* at = in_head ? reinterpret_cast<std::byte*>(&peer.in_head) + peer.in_bytes
                            : to.data + (peer.in_bytes - head_bytes);
    const size_t left = (in_head ? 0 : to.bytes) + head_bytes - peer.in_bytes;
    const ssize_t n = ::recv(*peer.data, at, std::min(left, largest_piece), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && !is_again())) throw_disappeared(name, r);
    if (n < 0) return false;
    peer.in_bytes += static_cast<size_t>(n);
    if (in_head && peer.in_bytes == head_bytes) compare(name, r, peer);
    if (peer.in_bytes == head_bytes + to.bytes) {
      ++peer.in_index;
      peer.in_bytes = 0;
    }
    return true;
  }

  void compare(const char* name, int r, const Peer& peer) {
    const MessageHead& head = peer.in_head;
    std::string why;
    if (head.name != head_of(name).name) {
      why = sentence("rank ", rank(), " is at the exchange '", name, "', and rank ", r, " at '",
                     head.name.data(), "'");
    } else if (head.index != peer.in_index || head.count != peer.in.size() ||
               head.bytes != peer.in[peer.in_index].bytes) {
      why = sentence("exchange '", name, "': rank ", r, " gives rank ", rank(),
                     " other messages than that one takes");
    }
    if (why.empty()) return;
    end_others(why);
    throw Error(ErrorKind::invalid, why);
  }

  std::vector<Peer> peers_;
};

}  // namespace

std::shared_ptr<Communicator> ranks_of_sockets(const MeetingPlace& place, int rank, int size,
                                               const MeetingPatience& patience) {
  check(size > 0 && rank >= 0 && rank < size, "rank ", rank, " is none of ", size, " ranks");
  return std::make_shared<SocketRanks>(place, rank, size, patience);
}

}  // namespace spool
