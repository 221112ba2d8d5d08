#include <cublasLt.h>

#include <string>

#include "spool/kernels/libraries.h"
#include "spool/runtime/check.h"
#include "spool/runtime/cuda/cudnn.h"

namespace spool {

std::string cuda_library_versions() {
  const Cudnn cudnn = find_cudnn();
  const std::string products = sentence("cuBLASLt ", cublasLtGetVersion());
  return cudnn ? sentence(products, ", cuDNN ", cudnn.version) : products;
}

}  // namespace spool
