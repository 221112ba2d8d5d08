#pragma once

// What spool_mpi.so, the only file that is linked with MPI, has for runtime/ranks/mpi.cpp, which
// opens it.  No exception passes: a function says what went wrong in a sentence, which is kept
// until the next call, or null.

#include <cstddef>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

struct MpiModule {
  static constexpr int current_version = 2;  // counted up with each change of this struct
  int version = current_version;

  struct Exchange {
    const char* name;
    const Message* out;
    size_t outs;
    const Message* in;
    size_t ins;
    double timeout;     // seconds in which nothing comes or goes; maybe infinite
    double patience;    // seconds in which a rank of this machine is stopped
    const char* doing;  // "step 12", in which others disappear; or nothing
  };
  struct Outcome {
    const char* why = nullptr;
    bool is_error = false;  // of what the ranks give; else a rank is lost
    RankLoss loss = RankLoss::another_tells;
  };

  // The library and its version; also before begin().
  const char* (*library)();
  // Begins MPI: the number of this process, and of all.
  const char* (*begin)(int* rank, int* size);
  Outcome (*move)(const Exchange&);
  // Tells the others, who give up what they are in; also while another thread is in move().
  void (*fail)(const char* why);
  // Whether another rank told a failure before this one; waits, the higher the rank, the longer.
  bool (*has_another_failed)();
  // If all is well, waits for the others, and ends MPI; false if they do not end as well.  If it is
  // not, ends all processes, this one too, with exit code 1.
  bool (*end)(bool is_well);
};

}  // namespace spool

// The module's only symbol.
extern "C" const spool::MpiModule* spool_mpi_module();
