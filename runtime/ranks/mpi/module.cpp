// The module spool_mpi.so.  Ranks tell each other which exchange they are at and what they give in
// it; what a rank has told so is taken from it in pieces, several on their way at once.  A waiting
// call of MPI would keep a core busy, which computes: so requests are tested, with pauses.

#include "spool/runtime/ranks/mpi/module.h"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/ranks/mpi/world.h"

namespace spool {
namespace {

constexpr size_t piece_bytes = size_t{1} << 20;
constexpr int pieces_on_their_way = 16;        // to a rank, and as many from it
constexpr double idle_before_pauses = 500e-6;  // seconds
constexpr double longest_between_looks = 1;    // that count
// Of time in which nothing moves: to the first look for lost ranks, which reads files of the
// system, and at most between two.
constexpr double before_a_look = 0.05, longest_before_a_look = 0.25;

// What a rank gives another in an exchange.
struct Head {
  uint64_t sizes = 0;  // a hash of the messages' sizes
  char name[120] = {};
};

// The messages of a list that are of one peer, in pieces.
class Pieces {
 public:
  Pieces(const Message* list, size_t count, int peer) {
    for (const Message* m = list; m != list + count; ++m) {
      if (m->peer == peer) all_.push_back(*m);
    }
  }

  uint64_t sizes() const {
    Hash hash;
    for (const Message& m : all_) hash.add(uint64_t{m.bytes});
    return hash.state();
  }

  const std::vector<Message>& messages() const { return all_; }

  // The next piece; one of 0 bytes at the end.
  Message next() {
    while (message_ < all_.size() && at_ == all_[message_].bytes) {
      ++message_;
      at_ = 0;
    }
    if (message_ == all_.size()) return {};
    const Message& m = all_[message_];
    const size_t bytes = std::min(piece_bytes, m.bytes - at_);
    at_ += bytes;
    return {m.peer, m.data + (at_ - bytes), bytes};
  }

 private:
  std::vector<Message> all_;
  size_t message_ = 0, at_ = 0;
};

// An exchange.
class Moving {
 public:
  explicit Moving(const MpiModule::Exchange& exchange) : what_(exchange) {
    for (int r = 0; r < world.size; ++r) {
      outs_.emplace_back(what_.out, what_.outs, r);
      ins_.emplace_back(what_.in, what_.ins, r);
    }
    own_.resize(outs_.size());
    theirs_.resize(outs_.size());
  }

  void run() {
    start();
    while (!is_done()) {
      if (idle_ < idle_before_pauses) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(pause_of_waiting);
      }
    }
  }

  // What still comes is not written.  Has the lock.
  void give_up() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const bool is_coming = waits_[i].kind == Kind::head || waits_[i].kind == Kind::taken;
      if (is_coming && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    }
  }

 private:
  enum class Kind { own_head, head, sent, taken };
  struct Wait {
    Kind kind;
    int peer;
  };
  // Moves what can be moved now.
  bool is_done() {
    const std::lock_guard lock(world.calls);
    while (pass()) {
      idle_ = idle_when_all_ran_ = 0;
      idle_at_next_look_ = before_next_look_ = before_a_look;
    }
    if (requests_.empty()) return true;
    count_idle_time();
    if (idle_ < idle_before_pauses) return false;
    throw_if_told();
    if (idle_ > idle_at_next_look_) throw_if_lost();
    if (idle_ > what_.timeout) throw Fault(timed_out(), RankLoss::absent);
    return false;
  }

  static size_t at(int rank) { return static_cast<size_t>(rank); }

  void start() {
    const std::lock_guard lock(world.calls);
    throw_if_told();
    check_sizes(world.rank, outs_[at(world.rank)].sizes());
    for (int r = 0; r < world.size; ++r) {
      if (r != world.rank) start_with(r);
    }
    for (size_t i = 0; i < outs_[at(world.rank)].messages().size(); ++i) {
      const Message& from = outs_[at(world.rank)].messages()[i];
      const Message& to = ins_[at(world.rank)].messages()[i];
      if (from.bytes > 0) std::memcpy(to.data, from.data, from.bytes);
    }
  }

  void start_with(int peer) {
    Head& own = own_[at(peer)];
    own.sizes = outs_[at(peer)].sizes();
    std::strncpy(own.name, what_.name, sizeof own.name - 1);
    receive(Kind::head, peer, &theirs_[at(peer)], sizeof(Head), tag_of_heads);
    send(Kind::own_head, peer, &own, sizeof own, tag_of_heads);
    for (int i = 0; i < pieces_on_their_way; ++i) send_next(peer);
  }

  void send(Kind kind, int peer, const void* data, size_t bytes, int tag) {
    waits_.push_back({kind, peer});
    must(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                   &requests_.emplace_back()),
         "send");
  }

  void receive(Kind kind, int peer, void* data, size_t bytes, int tag) {
    waits_.push_back({kind, peer});
    must(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                   &requests_.emplace_back()),
         "receive");
  }

  void send_next(int peer) {
    const Message piece = outs_[at(peer)].next();
    if (piece.bytes > 0) send(Kind::sent, peer, piece.data, piece.bytes, tag_of_pieces);
  }

  void take_next(int peer) {
    const Message piece = ins_[at(peer)].next();
    if (piece.bytes > 0) receive(Kind::taken, peer, piece.data, piece.bytes, tag_of_pieces);
  }

  // Whether some requests were done.
  bool pass() {
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  done_.data(), statuses_.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (int i = 0; i < count; ++i) must(statuses_[at(i)].MPI_ERROR, "move bytes");
    }
    must(code, "test requests");
    if (count <= 0) return false;
    std::vector<Wait> done;
    for (int i = 0; i < count; ++i) done.push_back(waits_[at(done_[at(i)])]);
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      waits_[kept++] = waits_[i];
    }
    requests_.resize(kept);
    waits_.resize(kept);
    for (const Wait& wait : done) follow(wait);
    return true;
  }

  void follow(const Wait& wait) {
    if (wait.kind == Kind::sent) send_next(wait.peer);
    if (wait.kind == Kind::taken) take_next(wait.peer);
    if (wait.kind != Kind::head) return;
    Head& head = theirs_[at(wait.peer)];
    head.name[sizeof head.name - 1] = 0;
    if (std::strncmp(head.name, what_.name, sizeof head.name - 1) != 0) {
      throw Fault(sentence("rank ", world.rank, " is at the exchange '", what_.name, "', and rank ",
                           wait.peer, " at '", head.name, "'"));
    }
    check_sizes(wait.peer, head.sizes);
    for (int i = 0; i < pieces_on_their_way; ++i) take_next(wait.peer);
  }

  void check_sizes(int peer, uint64_t given) const {
    if (given == ins_[at(peer)].sizes()) return;
    throw Fault(sentence("exchange '", what_.name, "': rank ", peer, " gives rank ", world.rank,
                         " other messages than that one takes"));
  }

  static void throw_if_told() {
    if (hear_failure()) throw Fault(world.why, world.loss);
  }

  // But not that in which this process was stopped.
  void count_idle_time() {
    const auto now = Clock::now();
    idle_ += std::min(std::chrono::duration<double>(now - looked_).count(), longest_between_looks);
    looked_ = now;
  }

  // By time: on a busy machine a pause may take many times as long.
  void throw_if_lost() {
    before_next_look_ = std::min(2 * before_next_look_, longest_before_a_look);
    idle_at_next_look_ = idle_ + before_next_look_;
    std::set<int> awaited;
    for (const Wait& wait : waits_) awaited.insert(wait.peer);
    bool is_one_stopped = false;
    for (const int peer : awaited) {
      const State state = state_of(peer);
      is_one_stopped |= state == State::stopped;
      if (state == State::stopped && idle_ - idle_when_all_ran_ > what_.patience) {
        throw Fault(sentence("rank ", peer, " did not come to the exchange '", what_.name,
                             "' within ", what_.patience, " s"),
                    RankLoss::absent);
      }
      if (state != State::gone) continue;
      const std::string in = *what_.doing ? sentence(" in ", what_.doing, ",") : std::string();
      throw Fault(
          sentence("rank ", peer, " disappeared", in, " at the exchange '", what_.name, "'"),
          RankLoss::disappeared);
    }
    if (!is_one_stopped) idle_when_all_ran_ = idle_;
  }

  // Names those that did not come; or, if all did, those that did not go on.
  std::string timed_out() const {
    for (const bool all_came : {false, true}) {
      std::string absent;
      for (int r = 0; r < world.size; ++r) {
        const bool is_awaited = std::ranges::any_of(waits_, [&](const Wait& wait) {
          return wait.peer == r && (all_came || wait.kind == Kind::head);
        });
        if (is_awaited) absent += sentence(absent.empty() ? "rank " : ", rank ", r);
      }
      if (absent.empty()) continue;
      return sentence(absent, " did not come to the exchange '", what_.name, "' within ",
                      what_.timeout, " s");
    }
    return "";
  }

  const MpiModule::Exchange& what_;
  std::vector<Pieces> outs_, ins_;  // by rank
  std::vector<Head> own_, theirs_;
  std::vector<MPI_Request> requests_;
  std::vector<Wait> waits_;  // what each request is
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  Clock::time_point looked_ = Clock::now();
  double idle_ = 0, idle_when_all_ran_ = 0;  // seconds
  double idle_at_next_look_ = before_a_look, before_next_look_ = before_a_look;
};

const char* library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int size = 0;
  MPI_Get_library_version(text, &size);
  world.said.assign(text, std::string_view(text).find_first_of(",\n"));
  return world.said.c_str();
}

const char* begin(int* rank, int* size) {
  int is_begun = 0, given = 0;
  MPI_Initialized(&is_begun);
  if (is_begun) return "MPI has been begun in this process already";
  try {
    must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "begin");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    meet_processes();
  } catch (const Fault& e) {
    world.said = e.what();
    return world.said.c_str();
  }
  *rank = world.rank;
  *size = world.size;
  if (given >= MPI_THREAD_SERIALIZED) return nullptr;
  MPI_Finalize();
  return "this MPI cannot be called by a second thread";
}

MpiModule::Outcome move_as(const MpiModule::Exchange& exchange, bool tells_last) {
  Moving moving(exchange);
  try {
    moving.run();
    return {};
  } catch (const Fault& e) {
    const int place = tells_last ? std::numeric_limits<int>::max() : place_of_telling();
    does_another_tell(place);
    const std::lock_guard lock(world.calls);
    moving.give_up();
    if (world.why.empty()) world.loss = e.loss;
    tell_failure(e.what());
    world.said = world.why;
    return {world.said.c_str(), !world.loss, world.loss.value_or(RankLoss::absent)};
  }
}

MpiModule::Outcome move(const MpiModule::Exchange& exchange) {
  return move_as(exchange, /*tells_last=*/false);
}

void fail(const char* why) {
  const std::lock_guard lock(world.calls);
  tell_failure(why);
}

// What this one has told of itself does not count.
bool has_another_failed() { return does_another_tell(place_of_telling()) && world.is_other_s; }

bool end(bool is_well) {
  if (is_well) {
    // A rank that is at an exchange tells that this one is not, to its user, too.
    MpiModule::Exchange end_of_all = {};
    end_of_all.name = "end of the run";
    end_of_all.doing = "";
    end_of_all.timeout = end_of_all.patience = std::numeric_limits<double>::infinity();
    if (move_as(end_of_all, /*tells_last=*/true).why) return false;
    MPI_Finalize();
    return true;
  }
  fail("it ended");
  // MPI_Abort ends the others, and the one that failed first may not have said its sentence yet.
  if (world.is_other_s) std::this_thread::sleep_for(std::chrono::seconds(2));
  std::fflush(nullptr);  // which MPI_Abort does not
  MPI_Abort(MPI_COMM_WORLD, 1);
  return true;
}

}  // namespace
}  // namespace spool

const spool::MpiModule* spool_mpi_module() {
  using namespace spool;
  static const MpiModule module = {.library = library,
                                   .begin = begin,
                                   .move = move,
                                   .fail = fail,
                                   .has_another_failed = has_another_failed,
                                   .end = end};
  return &module;
}
