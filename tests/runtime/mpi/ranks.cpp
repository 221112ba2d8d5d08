// What mpi_test.py starts by mpirun: ranks CASE.  Each rank prints a line of how it ended, which
// begins with "told: " if another rank tells it, too.

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "spool/runtime/check.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/ranks/mpi.h"
#include "spool/runtime/ranks/timeout.h"

namespace spool {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t mebi = size_t{1} << 20;

// What a rank sends another in a round; the buffers of both.
struct Letter {
  int peer;
  Bytes data;
};

std::byte letter_byte(int from, int to, size_t number, size_t i) {
  return static_cast<std::byte>(i * 31 + i / 4093 + static_cast<size_t>(from * 7 + to * 3) +
                                number);
}

void fill(Bytes& data, int from, int to, size_t number) {
  for (size_t i = 0; i < data.size(); ++i) data[i] = letter_byte(from, to, number, i);
}

// A message of each size from each rank to each, itself too.
void exchange_all(Communicator& ranks, const std::vector<size_t>& sizes, Stream& queue) {
  std::vector<Bytes> sent, taken;
  Messages out, in;
  sent.reserve(sizes.size() * static_cast<size_t>(ranks.size()));
  taken.reserve(sent.capacity());
  for (size_t number = 0; number < sizes.size(); ++number) {
    for (int r = 0; r < ranks.size(); ++r) {
      fill(sent.emplace_back(sizes[number]), ranks.rank(), r, number);
      taken.emplace_back(sizes[number]);
      out.push_back({r, sent.back().data(), sizes[number]});
      in.push_back({r, taken.back().data(), sizes[number]});
    }
  }
  ranks.exchange({.name = "letters", .out = out, .in = in}, queue);
  queue.synchronize();
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t number = i / static_cast<size_t>(ranks.size());
    Bytes wanted(in[i].bytes);
    fill(wanted, in[i].peer, ranks.rank(), number);
    check(taken[i] == wanted, "message ", number, " of rank ", in[i].peer, " is another");
  }
}

void exchanges(Communicator& ranks) {
  CpuStream queue(mebi, 0);
  for (const size_t size : {size_t{0}, size_t{1}, mebi + 3, 20 * mebi}) {
    exchange_all(ranks, {size}, queue);
  }
  exchange_all(ranks, std::vector<size_t>(300, 77), queue);
  exchange_all(ranks, {5, 0, 3 * mebi, 0, 4096, 17 * mebi + 1, 2}, queue);
  for (int i = 0; i < 200; ++i) exchange_all(ranks, {static_cast<size_t>(i)}, queue);
  const std::string own(static_cast<size_t>(ranks.rank()) * 1000,
                        static_cast<char>('a' + ranks.rank()));
  const std::vector<std::string> all = ranks.gather("texts", own);
  for (size_t r = 0; r < all.size(); ++r) {
    check(all[r] == std::string(r * 1000, static_cast<char>('a' + r)), "text ", r, " is another");
  }
}

void other_names(Communicator& ranks) {
  ranks.move_now(ranks.rank() == 1 ? "parameters 7" : "gradients 3", {}, {});
}

void other_sizes(Communicator& ranks) {
  Bytes data(mebi);
  const size_t given = ranks.rank() == 1 ? 40 : 44;
  Messages out, in;
  for (int r = 0; r < ranks.size(); ++r) {
    out.push_back({r, data.data(), r == ranks.rank() ? 44 : given});
    in.push_back({r, data.data() + 4096, 44});
  }
  ranks.move_now("gradients 3", out, in);
  ranks.gather("texts", "");
}

void fail_one(Communicator& ranks) {
  if (ranks.rank() == 1) {
    ranks.fail("the disk is full");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    fail(ErrorKind::file, "own disk is full");
  }
  ranks.gather("texts", "");
}

void leave_without_a_word(Communicator& ranks) {
  if (ranks.rank() == 1) fail(ErrorKind::device, "a fault");
  ranks.gather("texts", "");
}

// In several ranks at once, of which one says it.
void fail_all(Communicator& ranks) {
  ranks.gather("texts", "");
  const bool another_tells = ranks.has_lower_rank_failed();
  ranks.fail("no such data");
  if (another_tells) throw RankEnded("no such data");
  fail(ErrorKind::invalid, "no such data");
}

// One that has told the others is not told by another.
void tell_then_ask(Communicator& ranks) {
  ranks.gather("texts", "");
  if (ranks.rank() == 1) {
    ranks.fail("no such data");
    if (ranks.has_lower_rank_failed()) throw RankEnded("rank 1: no such data");
    fail(ErrorKind::invalid, "no such data");
  }
  ranks.gather("texts", "");
}

// Without a word, while the others wait for it.
void return_early(Communicator& ranks) {
  if (ranks.rank() == 1) return;
  ranks.gather("texts", "");
}

// mpirun ends the others by SIGTERM, and a second later by SIGKILL.
void kill_one(Communicator& ranks) {
  ::signal(SIGTERM, SIG_IGN);
  ranks.is_doing("step 3");
  ranks.gather("texts", "");
  if (ranks.rank() == 1) ::raise(SIGKILL);
  ranks.gather("texts", "");
}

// Those that are left come to another exchange on their way out.
void ask_twice(Communicator& ranks) {
  try {
    kill_one(ranks);
  } catch (const RankEnded&) {
    ranks.gather("state", "");
  }
}

// While the others wait for it as long as it takes.
void stop_one(Communicator& ranks) {
  set_rank_timeout(1);
  if (ranks.rank() == 1) ::raise(SIGSTOP);
  ranks.gather("texts", "");
}

// One of 4, of which the third comes late to move_now(), which waits for it.
void hang_one(Communicator& ranks) {
  set_rank_timeout(1);
  if (ranks.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ranks.gather("texts", "");
  if (ranks.rank() == 1) ::raise(SIGSTOP);
  std::byte sent{1}, taken{};
  CpuStream queue(mebi, 0);
  ranks.exchange({.name = "gradients", .out = {{1, &sent, 1}}, .in = {{1, &taken, 1}}}, queue);
  queue.synchronize();
}

int run(const std::string& what) {
  const char* const said = std::getenv("OMPI_COMM_WORLD_SIZE");
  const int size = (said ? std::atoi(said) : 1) + (what == "other_count" ? 1 : 0);
  std::string why_not;
  const auto ranks = ranks_of_mpi(size, &why_not);
  if (!ranks) {
    std::printf("no ranks: %s\n", why_not.c_str());
    return 0;
  }
  const std::map<std::string, std::function<void(Communicator&)>> cases = {
      {"exchanges", exchanges},       {"other_names", other_names},
      {"other_sizes", other_sizes},   {"fail_one", fail_one},
      {"kill_one", kill_one},         {"ask_twice", ask_twice},
      {"hang_one", hang_one},         {"fail_all", fail_all},
      {"stop_one", stop_one},         {"tell_then_ask", tell_then_ask},
      {"return_early", return_early}, {"leave_without_a_word", leave_without_a_word}};
  cases.at(what)(*ranks);
  if (what != "exchanges") return 0;
  std::printf("rank %d of %d by %s: well\n", ranks->rank(), ranks->size(), ranks->kind());
  return 0;
}

}  // namespace
}  // namespace spool

int main(int argc, char** argv) {
  try {
    if (argc != 2) return 2;
    if (argv[1] == std::string("library")) {
      std::printf("%s\n", spool::mpi_in_words().c_str());
      return 0;
    }
    return spool::run(argv[1]);
  } catch (const spool::RankEnded& e) {
    std::printf("%s%s\n", e.loss() == spool::RankLoss::another_tells ? "told: " : "", e.what());
    std::fflush(stdout);
    return 1;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    std::fflush(stdout);
    return 1;
  }
}
