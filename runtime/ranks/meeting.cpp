#include "spool/runtime/ranks/meeting.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <sstream>
#include <thread>

#include "spool/runtime/check.h"
#include "spool/runtime/ranks/communicator.h"
#include "spool/runtime/ranks/descriptor.h"
#include "spool/runtime/trace.h"
#include "spool/runtime/version.h"

namespace spool {
namespace {

constexpr size_t longest_line = 1 << 20;
constexpr double patience_with_refusal = 3;  // seconds
constexpr std::string_view greeting = "spool-meeting ", cannot_begin = "cannot-begin:";

std::string name_of(const MeetingPlace& place) {
  return place.host.empty() ? "the Unix socket of job '" + place.job + "'"
                            : place.host + ":" + std::to_string(place.port);
}

// Calls use(family, address, bytes) with the addresses of the place until one returns true.
template <class Use>
bool with_addresses(const MeetingPlace& place, const Use& use) {
  if (place.host.empty()) {
    const std::string name = "spool-" + place.job;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    check_setting(name.size() + 1 < sizeof address.sun_path, {"meet"}, "the job's name '",
                  place.job, "' is too long for a socket; name a place to meet, HOST:PORT");
    // It begins with a zero: of the abstract namespace, so nothing is left on a disk.
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return use(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), bytes);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
  check(failed == 0, "the ranks meet at ", name_of(place), ", and this machine does not know '",
        place.host, "': ", gai_strerror(failed));
  bool used = false;
  for (const addrinfo* a = found; a && !used; a = a->ai_next) {
    used = use(a->ai_family, a->ai_addr, a->ai_addrlen);
  }
  freeaddrinfo(found);
  return used;
}

Descriptor listen_at(const MeetingPlace& place) {
  Descriptor socket;
  int error = 0;
  const bool listens = with_addresses(place, [&](int family, const sockaddr* at, socklen_t bytes) {
    socket = Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    ::setsockopt(*socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(*socket, at, bytes) == 0 && ::listen(*socket, 1024) == 0) return true;
    error = errno;
    return false;
  });
  check_setting(listens || error != EADDRINUSE, {"meet"}, name_of(place),
                ", where the ranks meet, is in use by another program; name another, HOST:PORT");
  check(listens, "rank 0 cannot listen at ", name_of(place),
        ", where the ranks meet: ", std::strerror(error));
  return socket;
}

void send_line(int socket, const std::string& line) {
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(socket, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n <= 0 && errno != EINTR) return;  // it is gone; it is awaited, or reads the end
    sent += n > 0 ? static_cast<size_t>(n) : 0;
  }
}

struct Caller {
  Descriptor socket;
  std::string said;
};

// Whether the connection goes on: its first line may be whole or not yet.
bool hear(Caller& caller) {
  char some[4096];
  const ssize_t n = ::recv(*caller.socket, some, sizeof some, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  caller.said.append(some, static_cast<size_t>(n));
  const size_t known = std::min(caller.said.size(), greeting.size());
  return n > 0 && caller.said.size() < longest_line &&
         caller.said.compare(0, known, greeting.substr(0, known)) == 0;
}

class Host {
 public:
  Host(const MeetingPlace& place, int size, const std::string& own)
      : place_(place), gave_(static_cast<size_t>(size)), ranks_(static_cast<size_t>(size)) {
    gave_[0] = own;
  }

  std::vector<std::string> wait(const MeetingPatience& patience) {
    const Descriptor listener = listen_at(place_);
    const double begin = host_clock();
    bool told = false;
    while (!absent().empty()) {
      const double waited = host_clock() - begin;
      if (!refusal_.empty() && waited >= patience_with_refusal) break;
      check(waited < patience.end, absent(), " did not come to ", name_of(place_), " within ",
            patience.end, " s");
      if (!told && waited >= patience.first_word) {
        told = true;
        if (patience.says) patience.says("waiting for " + absent() + " at " + name_of(place_));
      }
      step(*listener);
    }
    if (!refusal_.empty()) fail(ErrorKind::invalid, refusal_);
    std::string all = "all";
    for (const std::string& word : gave_) all += " " + word;
    for (const Caller& rank : ranks_) {
      if (*rank.socket >= 0) send_line(*rank.socket, all + "\n");
    }
    return gave_;
  }

  void hear_all(double seconds) {
    const Descriptor listener = listen_at(place_);
    const double end = host_clock() + seconds;
    while (!absent().empty() && host_clock() < end) step(*listener);
  }

 private:
  std::string absent() const {
    std::string all;
    for (size_t r = 1; r < ranks_.size(); ++r) {
      if (*ranks_[r].socket < 0) all += (all.empty() ? "rank " : ", rank ") + std::to_string(r);
    }
    return all;
  }

  void step(int listener) {
    std::vector<pollfd> polled = {{listener, POLLIN, 0}};
    for (const Caller& caller : callers_) polled.push_back({*caller.socket, POLLIN, 0});
    ::poll(polled.data(), polled.size(), /*ms=*/50);
    std::vector<Caller> go_on;
    for (size_t i = 0; i < callers_.size(); ++i) {
      if (polled[i + 1].revents && !hear(callers_[i])) continue;
      if (callers_[i].said.find('\n') == std::string::npos) {
        go_on.push_back(std::move(callers_[i]));
      } else {
        receive(std::move(callers_[i]));
      }
    }
    callers_ = std::move(go_on);
    const int came = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (came >= 0) callers_.push_back({Descriptor(came), ""});
  }

  void receive(Caller caller) {
    std::istringstream words(caller.said.substr(greeting.size()));
    std::string version, job, gives;
    int rank = -1, size = 0;
    words >> version >> job >> rank >> size >> gives;
    const int ranks = static_cast<int>(ranks_.size());
    std::string no;
    if (version != spool::version()) {
      no = sentence("it is Spool ", version, ", and rank 0 is Spool ", spool::version());
    } else if (job != place_.job) {
      no = sentence("it is of job '", job, "', and rank 0 of '", place_.job, "'");
    } else if (size != ranks) {
      no = sentence("it is one of ", size, " ranks, and rank 0 of ", ranks);
    } else if (rank < 1 || rank >= ranks) {
      no = sentence("there are ranks 0 to ", ranks - 1);
    } else if (*ranks_[static_cast<size_t>(rank)].socket >= 0) {
      no = "it is there already";
    }
    if (!no.empty()) return send_line(*caller.socket, "no " + no + "\n");
    if (gives == cannot_begin) {
      std::getline(words >> std::ws, gives);
      if (refusal_.empty()) refusal_ = sentence("rank ", rank, ": ", gives);
    }
    gave_[static_cast<size_t>(rank)] = gives;
    ranks_[static_cast<size_t>(rank)] = std::move(caller);
  }

  MeetingPlace place_;
  std::vector<std::string> gave_;
  std::vector<Caller> ranks_, callers_;
  std::string refusal_;  // of a rank that cannot begin; the others are awaited, so that they end
};

Descriptor connect_to(const MeetingPlace& place, double end, RankLoss loss) {
  while (true) {
    Descriptor socket;
    const bool is_there =
        with_addresses(place, [&](int family, const sockaddr* at, socklen_t bytes) {
          socket = Descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
          return ::connect(*socket, at, bytes) == 0;
        });
    if (is_there) return socket;
    if (host_clock() > end) {
      throw RankEnded(sentence("rank 0 did not come to ", name_of(place), " in time"), loss);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string hello(const MeetingPlace& place, int rank, int size, const std::string& gives) {
  return sentence(greeting, version(), " ", place.job, " ", rank, " ", size, " ", gives, "\n");
}

// Whether the other ended the connection in that time, without a word.
bool meeting_has_ended(int socket, double seconds) {
  pollfd polled = {socket, POLLIN, 0};
  char some = 0;
  return ::poll(&polled, 1, static_cast<int>(seconds * 1000)) > 0 &&
         ::recv(socket, &some, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace

bool refuse_to_meet(const MeetingPlace& place, int rank, int size, const std::string& why,
                    double patience) {
  try {
    const Descriptor rank_0 = connect_to(place, host_clock() + patience, RankLoss::another_tells);
    std::string line = sentence(cannot_begin, " ", why);
    std::ranges::replace(line, '\n', ' ');
    send_line(*rank_0, hello(place, rank, size, line));
    if (!meeting_has_ended(*rank_0, patience_with_refusal + 1)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // in which rank 0 says it
    return true;
  } catch (const Error&) {
    return false;
  }
}

void end_meeting(const MeetingPlace& place, int size) {
  try {
    Host(place, size, /*own=*/"").hear_all(patience_with_refusal);
  } catch (const Error&) {
    return;  // another program listens there: the others have something to say themselves
  }
}

std::vector<std::string> meet(const MeetingPlace& place, int rank, int size, const std::string& own,
                              const MeetingPatience& patience) {
  if (rank == 0) return Host(place, size, own).wait(patience);
  // Rank 0, whose time is over first, says who did not come, and rank 1 that rank 0 did not.
  const double end = host_clock() + patience.end + 2;
  const RankLoss loss = rank == 1 ? RankLoss::absent : RankLoss::another_tells;
  Caller rank_0{connect_to(place, end, loss), ""};
  send_line(*rank_0.socket, hello(place, rank, size, own));
  std::string& said = rank_0.said;
  while (said.empty() || said.back() != '\n') {
    pollfd polled = {*rank_0.socket, POLLIN, 0};
    ::poll(&polled, 1, /*ms=*/100);
    if (host_clock() > end) throw RankEnded("the ranks did not all come to " + name_of(place));
    char some[4096];
    const ssize_t n = ::recv(*rank_0.socket, some, sizeof some, MSG_DONTWAIT);
    const bool goes_on = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (!goes_on) throw RankEnded("rank 0 ended the meeting at " + name_of(place));
    if (n > 0) said.append(some, static_cast<size_t>(n));
  }
  check(!said.starts_with("no "), "rank ", rank, " is refused at ", name_of(place), ": ",
        said.substr(3, said.size() - 4));
  std::istringstream words(said);
  std::string word;
  words >> word;
  std::vector<std::string> all;
  while (words >> word) all.push_back(word);
  check(all.size() == static_cast<size_t>(size), "what listens at ", name_of(place),
        " is no rank 0 of Spool");
  return all;
}

}  // namespace spool
