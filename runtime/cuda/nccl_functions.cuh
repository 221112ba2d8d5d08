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

}  // namespace spool::cuda
