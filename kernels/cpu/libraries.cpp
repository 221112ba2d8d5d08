#include "spool/kernels/libraries.h"

#if SPOOL_ONEDNN
#include <dnnl.h>
#endif

#include "spool/runtime/check.h"

namespace spool {

std::string library_versions(DeviceType device) {
#if SPOOL_CUDA
  if (device == DeviceType::cuda) return cuda_library_versions();
#endif
#if SPOOL_ONEDNN
  if (device == DeviceType::cpu) {
    const dnnl_version_t& version = *dnnl_version();
    return sentence("oneDNN ", version.major, ".", version.minor, ".", version.patch);
  }
#endif
  (void)device;
  return "none";
}

}  // namespace spool
