#include "spool/models/cli/ranks/refusals.h"

#include <cstdlib>
#include <string_view>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// Seconds; mpirun has ended this rank by then if rank 0 failed.
constexpr double time_to_be_heard = 4;

// A launcher's variables that say a wrong place may say it to all ranks, which then meet at the
// socket that ranks have without those.
MeetingPlace place_of(const LaunchedRank& own, const std::string& meet) {
  try {
    return meeting_place(own, meet);
  } catch (const Error&) {
    return meeting_place(own, /*meet=*/"", [](const char* name) -> const char* {
      const std::string_view text = name;
      const bool is_place = text.starts_with("MASTER_") || text.starts_with("SLURM_STEP_N");
      return is_place ? nullptr : own_environment(name);
    });
  }
}

// After rank 0 has said why: a launcher ends it as soon as another that heard it has ended.
void end_meeting_at_exit(const MeetingPlace& place, int size) {
  struct Refused {
    MeetingPlace place;
    int size;
  };
  static const Refused refused = {place, size};
  std::atexit([] { end_meeting(refused.place, refused.size); });
}

}  // namespace

bool is_to_say(const LaunchedRank& own, const std::string& meet, const std::string& why) {
  const MeetingPlace place = place_of(own, meet);
  if (own.rank > 0) return !refuse_to_meet(place, own.rank, own.size, why, time_to_be_heard);
  const bool ends_others = own.launcher == "mpirun";
  if (!ends_others) end_meeting_at_exit(place, own.size);
  return true;
}

std::string words_of_rank(int rank, const std::string& words) {
  return rank > 0 ? sentence("rank ", rank, ": ", words) : words;
}

}  // namespace spool
