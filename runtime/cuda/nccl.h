#pragma once

// Loads NCCL, by which ranks on GPUs exchange bytes, at its first use: it is never linked, so that
// Spool also runs without it.  SPOOL_NCCL=0 in the environment disables it.  This header includes
// none of NCCL's; runtime/cuda/nccl_functions.cuh has its functions.

#include <span>
#include <string>

namespace spool {

// The first version with ncclAlltoAll, and with collectives that copy engines carry out.
constexpr int min_nccl = 22800;  // 10000 major + 100 minor + patch

struct Nccl {
  void* library = nullptr;  // handle of dlopen()
  int version = 0;
  std::string why_not = {};  // why it cannot be used, and what would help; empty if it can

  explicit operator bool() const { return why_not.empty(); }
};

Nccl find_nccl();

// Loads the first of these files that Spool can use; if there is none, why_not explains the first.
Nccl open_nccl(std::span<const char* const> files);

// "NCCL 2.28.9", or why it cannot be used.
std::string nccl_in_words();

}  // namespace spool
