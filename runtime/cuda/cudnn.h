#pragma once

// cuDNN, which is never linked: the library is looked for when it is first asked for, so that Spool
// runs where there is none, with its own kernels.  SPOOL_CUDNN=0 in the environment does without.
// This header is free of CUDA's.

#include <cstddef>
#include <span>
#include <string>

namespace spool {

// The first that takes any number of tokens as they are, and is deterministic on every device.
constexpr size_t min_cudnn = 91800;  // 10000 major + 100 minor + patch

struct Cudnn {
  void* library = nullptr;  // of dlopen()
  size_t version = 0;
  std::string why_not = {};  // a sentence, if it cannot be used

  explicit operator bool() const { return why_not.empty(); }
};

Cudnn find_cudnn();

// The first of these files that is one Spool can use; where none is, why the first is not.
Cudnn open_cudnn(std::span<const char* const> files);

}  // namespace spool
