#pragma once

// The version, commit, compiler and options this program was built with.

#include <string>

namespace spool {

// "0.1.0"
const char* version();
// The first digits of the git commit, with a + if the tree had changes; "unknown" outside of git.
// The build writes its source (cmake/commit.cmake).
const char* commit();
// The compiler, and those of its options that affect the speed of kernels.
std::string build();

}  // namespace spool
