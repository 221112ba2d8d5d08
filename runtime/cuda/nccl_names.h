#pragma once

// The functions of NCCL that Spool calls, by their names less "nccl": all are in every version that
// it accepts (runtime/cuda/nccl.h).

#define SPOOL_NCCL_FUNCTIONS(f)                                                                  \
  f(GetVersion) f(GetErrorString) f(GetLastError) f(GetUniqueId) f(CommInitRankConfig)           \
      f(CommSplit) f(CommGetAsyncError) f(CommAbort) f(CommFinalize) f(CommDestroy)              \
          f(CommWindowRegister) f(CommWindowDeregister) f(AlltoAll) f(AllGather) f(Send) f(Recv) \
              f(GroupStart) f(GroupEnd)
