#if SPOOL_NCCL

#include "spool/runtime/cuda/nccl_functions.cuh"

#include <dlfcn.h>

#include "spool/runtime/check.h"

namespace spool::cuda {

NcclFunctions nccl_functions([[maybe_unused]] const Nccl& opened) {
#if SPOOL_NCCL_EMULATED
#define SPOOL_FIND_NCCL(name) .name = &nccl##name,
#else
#define SPOOL_FIND_NCCL(name) \
  .name = reinterpret_cast<decltype(&nccl##name)>(dlsym(opened.library, "nccl" #name)),
#endif
  return {SPOOL_NCCL_FUNCTIONS(SPOOL_FIND_NCCL)};
#undef SPOOL_FIND_NCCL
}

const NcclFunctions& nccl() {
  const Nccl found = find_nccl();
  if (!found) fail(ErrorKind::device, found.why_not);
  static const NcclFunctions functions = nccl_functions(found);
  return functions;
}

ncclConfig_t config_of_ranks() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  config.commName = "data";
  return config;
}

}  // namespace spool::cuda

#endif
