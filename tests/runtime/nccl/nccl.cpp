// A stand-in for NCCL that has its functions, each of which gives the version.  One without
// functions has that alone.

#include "spool/runtime/cuda/nccl_names.h"

#define NCCL_GIVES_VERSION(name)            \
  extern "C" int nccl##name(int* version) { \
    *version = NCCL_VERSION_SAID;           \
    return 0;                               \
  }

#if NCCL_WITHOUT_FUNCTIONS
NCCL_GIVES_VERSION(GetVersion)
#else
SPOOL_NCCL_FUNCTIONS(NCCL_GIVES_VERSION)
#endif
