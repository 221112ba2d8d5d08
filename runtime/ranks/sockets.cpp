#include "spool/runtime/ranks/sockets.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <set>
#include <string>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/connections.h"
#include "spool/runtime/ranks/peer_watch.h"
#include "spool/runtime/ranks/timeout.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

constexpr size_t largest_piece = size_t{1} << 20;

constexpr double longest_poll = 0.1, shortest_silence = 5;  // seconds

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

// What travels between this rank and another in an exchange.
struct Traffic {
  Descriptor connection;
  std::vector<MessageHead> out_heads;
  std::deque<Part> out;
  MessageHead in_head;
  std::vector<Message> in;
  size_t in_index = 0, in_bytes = 0;  // those taken, with the head's

  bool waits() const { return !out.empty() || in_index < in.size(); }
};

bool is_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

class SocketRanks final : public Communicator {
 public:
  SocketRanks(int rank, int size, Connections connections)
      : Communicator(rank, size),
        peers_(static_cast<size_t>(size)),
        watch_(rank, std::move(connections.watch)) {
    for (size_t r = 0; r < peers_.size(); ++r) {
      peers_[r].connection = std::move(connections.data[r]);
    }
  }
  ~SocketRanks() override {
    if (std::uncaught_exceptions() > 0) fail("it ended by an error");
  }
  SocketRanks(const SocketRanks&) = delete;
  SocketRanks& operator=(const SocketRanks&) = delete;

  const char* kind() const override { return "sockets"; }
  void is_doing(const std::string& what) override { watch_.is_doing(what); }
  bool has_lower_rank_failed() override { return watch_.has_lower_rank_failed(/*seconds=*/1); }

  void check_others(const char* exchange, double waited) override {
    watch_.throw_if_ended();
    std::set<int> others, silent;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      char next = 0;
      const ssize_t n = ::recv(*peers_[static_cast<size_t>(r)].connection, &next, sizeof next,
                               MSG_PEEK | MSG_DONTWAIT);
      if (n == 0 || (n < 0 && !is_again())) watch_.throw_disappeared(r, exchange);
      others.insert(r);
      if (watch_.silence(r) >= 0.6 * rank_timeout()) silent.insert(r);
    }
    if (waited < rank_timeout()) return;
    watch_.throw_absent(silent.empty() ? others : silent, exchange, rank_timeout());
  }

 private:
  void end_others(const std::string& why) override { watch_.end(why); }

  void move(const char* name, const Messages& out, const Messages& in, double timeout) override {
    watch_.throw_if_ended();
    prepare(name, out, in);
    double waited = 0;
    while (waiting()) {
      const double begin = host_clock();
      wait();
      bool moved = false;
      for (int r = 0; r < size(); ++r) moved |= r != rank() && step(name, r);
      // Not the time in which this process itself was stopped.
      waited = moved ? 0 : waited + std::min(host_clock() - begin, 2 * longest_poll);
      if (!moved) throw_if_hanging(name, waited, timeout);
    }
  }

  // Where a rank waits for others' work, without a timeout, they still have to be heard.  Of those
  // that did not come, ranks that are heard wait for another.
  void throw_if_hanging(const char* name, double waited, double timeout) {
    const bool is_over = waited >= timeout;
    const double patience = is_over ? timeout : std::max(rank_timeout(), shortest_silence);
    std::set<int> awaited, silent;
    for (int r = 0; r < size(); ++r) {
      if (!peers_[static_cast<size_t>(r)].waits()) continue;
      awaited.insert(r);
      if (watch_.silence(r) >= (is_over ? 0.6 * timeout : patience)) silent.insert(r);
    }
    if (!silent.empty()) watch_.throw_absent(silent, name, patience);
    if (is_over) watch_.throw_absent(awaited, name, patience);
  }

  void prepare(const char* name, const Messages& out, const Messages& in) {
    std::deque<Part> own;
    for (Traffic& peer : peers_) {
      peer.out_heads.clear();
      peer.out.clear();
      peer.in.clear();
      peer.in_index = peer.in_bytes = 0;
    }
    for (const Message& m : out) {
      Traffic& peer = peers_[static_cast<size_t>(m.peer)];
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
    for (Traffic& peer : peers_) add_heads(peer);
  }

  static void add_heads(Traffic& peer) {
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
    return std::ranges::any_of(peers_, [](const Traffic& peer) { return peer.waits(); });
  }

  // Returns when a connection is ready, and throws what another rank says as it ends.
  void wait() {
    std::vector<pollfd> polled;
    for (const Traffic& peer : peers_) {
      const bool takes = peer.in_index < peer.in.size();
      const int events = (peer.out.empty() ? 0 : POLLOUT) | (takes ? POLLIN : 0);
      polled.push_back({peer.waits() ? *peer.connection : -1, static_cast<short>(events), 0});
    }
    polled.push_back({watch_.bell(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), static_cast<int>(longest_poll * 1000));
    if (polled.back().revents) watch_.throw_if_ended();
  }

  // Sends and takes a piece; whether bytes moved.
  bool step(const char* name, int r) {
    Traffic& peer = peers_[static_cast<size_t>(r)];
    bool moved = false;
    if (!peer.out.empty()) {
      Part& part = peer.out.front();
      const ssize_t n = ::send(*peer.connection, part.data, std::min(part.bytes, largest_piece),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && !is_again()) watch_.throw_disappeared(r, name);
      moved = n > 0;
      part.data += std::max<ssize_t>(n, 0);
      part.bytes -= static_cast<size_t>(std::max<ssize_t>(n, 0));
      if (part.bytes == 0) peer.out.pop_front();
    }
    return take(name, r) || moved;
  }

  bool take(const char* name, int r) {
    Traffic& peer = peers_[static_cast<size_t>(r)];
    if (peer.in_index == peer.in.size()) return false;
    const Message& to = peer.in[peer.in_index];
    constexpr size_t head_bytes = sizeof(MessageHead);
    const bool in_head = peer.in_bytes < head_bytes;
    std::byte* at = in_head ? reinterpret_cast<std::byte*>(&peer.in_head) + peer.in_bytes
                            : to.data + (peer.in_bytes - head_bytes);
    const size_t left = (in_head ? 0 : to.bytes) + head_bytes - peer.in_bytes;
    const ssize_t n = ::recv(*peer.connection, at, std::min(left, largest_piece), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && !is_again())) watch_.throw_disappeared(r, name);
    if (n < 0) return false;
    peer.in_bytes += static_cast<size_t>(n);
    if (in_head && peer.in_bytes == head_bytes) compare(name, r, peer);
    if (peer.in_bytes == head_bytes + to.bytes) {
      ++peer.in_index;
      peer.in_bytes = 0;
    }
    return true;
  }

  void compare(const char* name, int r, const Traffic& peer) {
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
    watch_.end(why);
    throw Error(ErrorKind::invalid, why);
  }

  std::vector<Traffic> peers_;
  PeerWatch watch_;
};

}  // namespace

std::shared_ptr<Communicator> ranks_of_sockets(const MeetingPlace& place, int rank, int size,
                                               const MeetingPatience& patience) {
  check(size > 0 && rank >= 0 && rank < size, "rank ", rank, " is none of ", size, " ranks");
  return std::make_shared<SocketRanks>(rank, size, connect_ranks(place, rank, size, patience));
}

}  // namespace spool
