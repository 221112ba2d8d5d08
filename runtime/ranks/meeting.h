#pragma once

// Where ranks that are processes find each other before their first exchange.  Rank 0 listens at
// one address only; the others connect to it, say who they are, and get what each rank said.

#include <functional>
#include <string>
#include <vector>

namespace spool {

struct MeetingPlace {
  std::string host;  // empty: a Unix socket of this machine, named after the job
  int port = 0;
  std::string job;
};

struct MeetingPatience {
  double first_word = 10;  // seconds until `says` hears which ranks are awaited
  double end = 300;        // seconds until an error names them
  std::function<void(const std::string&)> says;
};

// What each rank gives, by rank: a word without spaces or ends of lines.  Rank 0 drops connections
// that do not begin as Spool's do, and refuses, with a sentence, a rank of another job, version or
// number of ranks, one that is there already, and one out of range.
std::vector<std::string> meet(const MeetingPlace&, int rank, int size, const std::string& own,
                              const MeetingPatience& = {});

// On a rank that cannot begin: tells rank 0 why, which ends then as meet() throws "rank 2: ...".
// Whether it was told; that takes until rank 0 ends, as a launcher may end all ranks with the first
// that does.
bool refuse_to_meet(const MeetingPlace&, int rank, int size, const std::string& why,
                    double patience);

// On a rank 0 that cannot begin, and says why: hears the others, for a few seconds, so that those
// that came end, and those that cannot begin either need not say it.
void end_meeting(const MeetingPlace&, int size);

}  // namespace spool
