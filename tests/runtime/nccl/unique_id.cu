#include "tests/runtime/nccl/unique_id.h"

#include "spool/runtime/check.h"
#include "spool/runtime/cuda/nccl_functions.cuh"

namespace spool::testing {

std::string unique_id(const Nccl& opened) {
  const cuda::NcclFunctions functions = cuda::nccl_functions(opened);
  ncclUniqueId id{};
  const ncclResult_t result = functions.GetUniqueId(&id);
  check(result == ncclSuccess, functions.GetErrorString(result), ": ",
        functions.GetLastError(nullptr));
  return {id.internal, sizeof id.internal};
}

}  // namespace spool::testing
