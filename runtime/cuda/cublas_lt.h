#pragma once

// Loads cuBLASLt, NVIDIA's library of matrix products, at its first use: it is never linked, so
// that a program starts, and runs on the cpu, without CUDA.  This header includes none of CUDA's;
// kernels/cuda/cublas_lt.cuh has the functions.

#include <span>

namespace spool {

// The dlopen() handle of the system's library, else of the one of the toolkit that built this.
// Throws a device error if there is none.
void* load_cublas_lt();

// The handle of the first of these files that can be loaded; an error explains the first.
void* open_cublas_lt(std::span<const char* const> files);

// The function with this name; throws a device error if the library has none.
void* find_cublas_lt(void* library, const char* name);

}  // namespace spool
