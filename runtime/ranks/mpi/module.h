#pragma once

// What spool_mpi.so, the only file that is linked with MPI, has for runtime/ranks/mpi.cpp, which
// opens it.  No exception passes: a function returns null, or a sentence about what went wrong,
// which is kept until the next call.

#include <cstddef>

#include "spool/runtime/ranks/communicator.h"

namespace spool {

struct MpiModule {
  static constexpr int current_version = 1;  // counted up with each change of this struct
  int version = current_version;

  struct Exchange {
    const char* name;
    const Message* out;
    size_t outs;
    const Message* in;
    size_t ins;
    double timeout;  // seconds in which nothing comes or goes
  };

  // The library and its version; also before begin().
  const char* (*library)();
  // Begins MPI: the number of this process, and of all.
  const char* (*begin)(int* rank, int* size);
  const char* (*move)(const Exchange&);
  // Tells the others, who give up what they are in; also while another thread is in move().
  void (*fail)(const char* why);
  // Ends MPI; where not all is well, all processes with it, this one too.
  void (*end)(bool is_well);
};

}  // namespace spool

// The module's only symbol.
extern "C" const spool::MpiModule* spool_mpi_module();
