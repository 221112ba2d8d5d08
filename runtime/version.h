#pragma once

// What this program was built from.

#include <string>

namespace spool {

// "0.1.0"
const char* version();
// The first digits of the git commit, with a + if the tree had changes; "unknown" outside of git.
// The build writes its source (cmake/commit.cmake).
const char* commit();
// The compiler, and how it was told to compile as far as that makes kernels faster or slower.
std::string build();

}  // namespace spool
