#pragma once

// Loads cuDNN at its first use: it is never linked, so that Spool also runs without it, on its own
// kernels.  SPOOL_CUDNN=0 in the environment disables it.  This header includes none of CUDA's.

#include <cstddef>
#include <span>
#include <string>

namespace spool {

// The first version that accepts any number of tokens without padding, and is deterministic on
// every device.
constexpr size_t min_cudnn = 91800;  // 10000 major + 100 minor + patch

struct Cudnn {
  void* library = nullptr;  // handle of dlopen()
  size_t version = 0;
  std::string why_not = {};  // why it cannot be used; empty if it can

  explicit operator bool() const { return why_not.empty(); }
};

Cudnn find_cudnn();

// Loads the first of these files that Spool can use; if there is none, why_not explains the first.
Cudnn open_cudnn(std::span<const char* const> files);

}  // namespace spool
