#pragma once

// The calls of MPI, of one thread at a time, and what is known of the ends of other ranks.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds pause_of_waiting{50};

enum Tag { tag_of_heads = 1, tag_of_pieces, tag_of_failure };

// An exchange cannot go on.
struct Fault : std::runtime_error {
  explicit Fault(const std::string& why, std::optional<RankLoss> lost = {})
      : std::runtime_error(why), loss(lost) {}
  std::optional<RankLoss> loss;  // a rank ended or did not come
};

// Throws unless MPI could do it.
void must(int code, const char* what);

struct World {
  std::mutex calls;
  int rank = 0, size = 0;
  std::string why;  // a rank failed
  bool is_other_s = false;
  std::optional<RankLoss> loss = RankLoss::another_tells;  // of `why`; none: of no lost rank
  std::string said;                                        // by the last call

  struct Process {
    uint64_t machine = 0;  // a hash of where its number counts
    int64_t number = 0;
  };
  std::vector<Process> processes;  // by rank
};
extern World world;

// Has the lock, as the next three have.  Tells the others why this rank cannot go on, if none
// failed before.
void tell_failure(const std::string& why);
// Whether a rank failed; then world.why has the reason.
bool hear_failure();
void meet_processes();
// Of a rank of another machine nothing is known.
enum class State { runs, stopped, gone };
State state_of(int rank);

// Which of the ranks that are left this one is, counted from 0.
int place_of_telling();
// Has no lock.  Of several ranks that notice the same, the lowest that is left tells it: one waits
// for the word of another so much the longer, and says whether it came.
bool does_another_tell(int place);

}  // namespace spool
