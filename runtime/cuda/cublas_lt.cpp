#include "spool/runtime/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <string>

#include "spool/runtime/check.h"

namespace spool {

void* open_cublas_lt(std::span<const char* const> files) {
  std::string why_not;
  for (const char* file : files) {
    if (void* const library = dlopen(file, RTLD_NOW)) return library;
    if (const std::string why = dlerror(); why_not.empty()) why_not = why;
  }
  fail(ErrorKind::device, "cuBLASLt, which computes products on cuda, is not found: ", why_not,
       "; install the cuBLAS of NVIDIA's CUDA toolkit, or name the folder that has it in "
       "LD_LIBRARY_PATH");
}

void* find_cublas_lt(void* library, const char* name) {
  void* const function = dlsym(library, name);
  if (!function) {
    fail(ErrorKind::device, "the cuBLASLt that is found here has no ", name, ": ", dlerror(),
         "; install the cuBLAS of the CUDA toolkit that Spool was built with");
  }
  return function;
}

void* load_cublas_lt() {
#ifdef SPOOL_CUBLASLT_FILES
  constexpr const char* files[] = {SPOOL_CUBLASLT_FILES};
  return open_cublas_lt(files);
#else
  fail(ErrorKind::device, "this build is without cuBLASLt");
#endif
}

}  // namespace spool
