#pragma once

// The functions of NCCL that Spool calls, by their names less "nccl", typed by NCCL's header.  Only
// sources of a build that has it (SPOOL_NCCL) may include this.

#include <nccl.h>

#include "spool/runtime/cuda/nccl.h"
#include "spool/runtime/cuda/nccl_names.h"

namespace spool::cuda {

struct NcclFunctions {
#define SPOOL_NCCL_MEMBER(name) decltype(&nccl##name) name;
  SPOOL_NCCL_FUNCTIONS(SPOOL_NCCL_MEMBER)
#undef SPOOL_NCCL_MEMBER
};

// Those of the library that find_nccl() finds; throws a device error if it finds none.
const NcclFunctions& nccl();

// Those of a library that was opened.
NcclFunctions nccl_functions(const Nccl&);

// How ranks make communicators: their calls return at once, and exchanges take no multiprocessor
// where copy engines can carry them out.
ncclConfig_t config_of_ranks();

}  // namespace spool::cuda
