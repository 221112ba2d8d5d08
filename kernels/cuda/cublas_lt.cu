#include "spool/kernels/cuda/cublas_lt.cuh"

#include "spool/runtime/cuda/cublas_lt.h"

namespace spool::cuda {
namespace {

#if SPOOL_CUBLASLT_EMULATED  // the emulated library is linked
#define SPOOL_FIND(function) .function = (&cublasLt##function)
CublasLt find_functions() {
#else
#define SPOOL_FIND(function)                                   \
  .function = reinterpret_cast<decltype(&cublasLt##function)>( \
      find_cublas_lt(library, "cublasLt" #function))
CublasLt find_functions() {
  void* const library = load_cublas_lt();
#endif
  return {SPOOL_FIND(GetVersion),
          SPOOL_FIND(GetStatusString),
          SPOOL_FIND(Create),
          SPOOL_FIND(Destroy),
          SPOOL_FIND(MatmulDescCreate),
          SPOOL_FIND(MatmulDescDestroy),
          SPOOL_FIND(MatmulDescSetAttribute),
          SPOOL_FIND(MatrixLayoutCreate),
          SPOOL_FIND(MatrixLayoutDestroy),
          SPOOL_FIND(MatrixLayoutSetAttribute),
          SPOOL_FIND(MatmulPreferenceCreate),
          SPOOL_FIND(MatmulPreferenceDestroy),
          SPOOL_FIND(MatmulPreferenceSetAttribute),
          SPOOL_FIND(MatmulAlgoGetHeuristic),
          SPOOL_FIND(Matmul)};
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions = find_functions();
  return functions;
}

}  // namespace spool::cuda
