#pragma once

// Parts of error sentences.

#include <sstream>
#include <string>

#include "execution.h"

namespace emulator {

template <class... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

inline std::string text(Location where) { return sentence(where.file, ":", where.line); }
inline std::string text(uint3 index) {
  return sentence("(", index.x, ",", index.y, ",", index.z, ")");
}

// Names a thread of the grid.
inline std::string whose(uint3 block, uint3 thread) {
  return sentence(" [block ", text(block), " thread ", text(thread), "]");
}

}  // namespace emulator
