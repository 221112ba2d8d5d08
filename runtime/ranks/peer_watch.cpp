// Each line that a rank tells another is a word and its text: "doing step 12", "failed the disk is
// full", "absent 0,2 rank 0, rank 2 did not come ...".

#include "spool/runtime/ranks/peer_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <span>
#include <sstream>
#include <string_view>

#include "spool/runtime/check.h"
#include "spool/runtime/trace.h"

namespace spool {
namespace {

constexpr double seconds_between_lines = 0.25, least_seconds_between = 0.05;

// How a rank ends: by an error of its own, as another ended, because it lost others, or, in no
// line, without a word.
constexpr std::string_view failed = "failed", followed = "followed", lost_gone = "gone",
                           lost_absent = "absent", vanished = "vanished";

void open_pipe(Descriptor& read, Descriptor& write) {
  std::array<int, 2> ends = {-1, -1};
  check(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0, "the system gives no pipe for ranks");
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
}

void ring(const Descriptor& bell) { [[maybe_unused]] const ssize_t n = ::write(*bell, "!", 1); }

std::string numbers_of(const std::set<int>& ranks) {
  std::string text;
  for (const int r : ranks) text += sentence(text.empty() ? "" : ",", r);
  return text;
}

std::set<int> ranks_of(const std::string& numbers) {
  std::set<int> ranks;
  std::istringstream in(numbers);
  for (std::string number; std::getline(in, number, ',');) ranks.insert(std::stoi(number));
  return ranks;
}

RankLoss loss_of(std::string_view word) {
  return word == lost_gone ? RankLoss::disappeared : RankLoss::absent;
}

}  // namespace

PeerWatch::PeerWatch(int rank, std::vector<Descriptor> connections)
    : rank_(rank), peers_(connections.size()) {
  for (size_t r = 0; r < peers_.size(); ++r) peers_[r].connection = std::move(connections[r]);
  open_pipe(bell_read_, bell_write_);
  open_pipe(stop_read_, stop_write_);
  thread_ = std::jthread([this] { run(); });
}

PeerWatch::~PeerWatch() { ring(stop_write_); }

void PeerWatch::is_doing(const std::string& what) {
  const std::lock_guard lock(mutex_);
  doing_ = what;
  const double now = host_clock();
  if (now - began_ < least_seconds_between) return;  // the thread tells it
  began_ = now;
  tell_what_it_does();
}

void PeerWatch::end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!has_told_end_) tell(sentence(how_.empty() ? std::string(failed) : how_, " ", why));
  has_told_end_ = true;
}

// The connection holds far more than a rank that is stopped for a while leaves unread; one that is
// full is of a rank that hangs.
void PeerWatch::tell(const std::string& text) {
  std::string line = text.substr(0, 4096);
  std::ranges::replace(line, '\n', ' ');
  line.push_back('\n');
  for (const Peer& peer : peers_) {
    if (*peer.connection < 0) continue;
    ::send(*peer.connection, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void PeerWatch::tell_what_it_does() {
  if (has_told_end_) return;
  told_ = host_clock();
  tell("doing " + doing_);
}

void PeerWatch::run() {
  double last = host_clock();
  for (;;) {
    std::vector<pollfd> polled;
    {
      const std::lock_guard lock(mutex_);
      if (host_clock() - told_ >= seconds_between_lines) tell_what_it_does();
      for (const Peer& peer : peers_) {
        polled.push_back({peer.end.empty() ? *peer.connection : -1, POLLIN, 0});
      }
    }
    polled.push_back({*stop_read_, POLLIN, 0});
    ::poll(polled.data(), polled.size(), /*ms=*/100);
    if (polled.back().revents) return;
    const std::lock_guard lock(mutex_);
    const double now = host_clock(), passed = std::min(now - last, seconds_between_lines);
    last = now;
    for (size_t r = 0; r < peers_.size(); ++r) {
      peers_[r].silence += passed;  // not the time in which this process itself was stopped
      if (polled[r].revents) read(peers_[r]);
    }
    changed_.notify_all();
  }
}

void PeerWatch::read(Peer& peer) {
  std::array<char, 8192> some = {};
  const ssize_t n = ::recv(*peer.connection, some.data(), some.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    peer.end = vanished;
    return ring(bell_write_);
  }
  peer.silence = 0;
  peer.heard.append(some.data(), static_cast<size_t>(n));
  for (size_t end = 0; (end = peer.heard.find('\n')) != std::string::npos;) {
    take_line(peer, peer.heard.substr(0, end));
    peer.heard.erase(0, end + 1);
  }
}

void PeerWatch::take_line(Peer& peer, const std::string& line) {
  std::istringstream words(line);
  std::string word, numbers, text;
  words >> word;
  const bool has_lost = word == lost_gone || word == lost_absent;
  if (has_lost) words >> numbers;
  words.get();
  std::getline(words, text);
  if (word == "doing") {
    peer.doing = text;
    return;
  }
  peer.end = word;
  peer.why = text;
  peer.lost = ranks_of(numbers);
  ring(bell_write_);
}

bool PeerWatch::is_lowest_without(const std::set<int>& lost) const {
  for (int r = 0; r < rank_; ++r) {
    if (!lost.contains(r) && peers_[static_cast<size_t>(r)].end != vanished) return false;
  }
  return true;
}

void PeerWatch::throw_if_ended() {
  const std::lock_guard lock(mutex_);
  char rung = 0;
  while (::read(*bell_read_, &rung, 1) > 0) continue;
  // One that failed of itself counts before those that followed it, which say the same.
  auto first = std::ranges::find(peers_, failed, &Peer::end);
  if (first == peers_.end()) {
    first = std::ranges::find_if(peers_, [](const Peer& p) { return !p.why.empty(); });
  }
  if (first == peers_.end()) return;
  const bool has_lost = !first->lost.empty();
  how_ = has_lost ? sentence(first->end, " ", numbers_of(first->lost)) : std::string(followed);
  const bool tells = has_lost && is_lowest_without(first->lost);
  throw RankEnded(first->why, tells ? loss_of(first->end) : RankLoss::another_tells);
}

void PeerWatch::throw_disappeared(int rank, const std::string& exchange) {
  std::unique_lock lock(mutex_);
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  changed_.wait_for(lock, std::chrono::seconds(1), [&] { return !peer.end.empty(); });
  const std::string in = peer.doing.empty() ? std::string() : sentence(" in ", peer.doing, ",");
  lock.unlock();
  throw_if_ended();
  throw_lost(lost_gone, {rank},
             sentence("rank ", rank, " disappeared", in, " at the exchange '", exchange, "'"));
}

void PeerWatch::throw_absent(const std::set<int>& ranks, const std::string& exchange,
                             double seconds) {
  throw_if_ended();
  std::string who;
  for (const int r : ranks) who += sentence(who.empty() ? "rank " : ", rank ", r);
  throw_lost(
      lost_absent, ranks,
      sentence(who, " did not come to the exchange '", exchange, "' within ", seconds, " s"));
}

void PeerWatch::throw_lost(std::string_view word, const std::set<int>& lost,
                           const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!has_told_end_) tell(sentence(word, " ", numbers_of(lost), " ", why));
  has_told_end_ = true;
  throw RankEnded(why, is_lowest_without(lost) ? loss_of(word) : RankLoss::another_tells);
}

double PeerWatch::silence(int rank) {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(rank)].silence;
}

bool PeerWatch::has_lower_rank_failed(double seconds) {
  std::unique_lock lock(mutex_);
  const std::span lower(peers_.data(), static_cast<size_t>(rank_));
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return std::ranges::all_of(lower, [](const Peer& p) { return !p.end.empty(); });
  });
  return std::ranges::find(lower, failed, &Peer::end) != lower.end();
}

}  // namespace spool
