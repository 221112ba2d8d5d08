#pragma once

// The CUDA devices of this machine.  This header includes none of CUDA's.

#include <cstddef>
#include <string>

namespace spool {

// GPU memory for what CUDA loads after a stream is opened, kernels and the workspaces of libraries
// that are not in an arena: an allowance, not a measurement.
constexpr size_t cuda_library_bytes = size_t{512} << 20;

// An arena takes whole pages: of this size where no device says another.
constexpr size_t cuda_page_bytes = size_t{2} << 20;

struct CudaDevice {
  std::string name, uuid;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t free_bytes = 0, bytes = 0;  // memory, free and total
  size_t page_bytes = cuda_page_bytes;
  int driver = 0, runtime = 0;  // versions, as 1000 major + 10 minor

  // Whole pages of the free memory less the allowance.
  size_t bytes_for_an_arena() const {
    const size_t left = free_bytes < cuda_library_bytes ? 0 : free_bytes - cuda_library_bytes;
    return left / page_bytes * page_bytes;
  }
};

// Number of devices; 0 without a driver.
int cuda_device_count();

// Makes the device the thread's current one.  Throws if there is no such device, its driver is
// older than the runtime Spool was built with, its compute capability is below 8.0, this build has
// no kernels for it, another program has it for itself, or it has no memory for CUDA's context.
CudaDevice cuda_device(int index);

}  // namespace spool
