#include <string>

#include "spool/kernels/cuda/cublas_lt.cuh"
#include "spool/kernels/libraries.h"
#include "spool/runtime/check.h"
#include "spool/runtime/cuda/cudnn.h"

namespace spool {

namespace {

std::string products_version() {
  try {
    return sentence("cuBLASLt ", cuda::cublas_lt().GetVersion());
  } catch (const Error&) {
    return "no cuBLASLt";
  }
}

}  // namespace

std::string cuda_library_versions() {
  const Cudnn cudnn = find_cudnn();
  const std::string products = products_version();
  return cudnn ? sentence(products, ", cuDNN ", cudnn.version) : products;
}

}  // namespace spool
