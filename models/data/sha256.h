#pragma once

// SHA-256 (FIPS 180-4), to recognise a text without storing it.  The hashes of files in
// runtime/hash.h are others, and faster.

#include <string>
#include <string_view>

namespace spool {

// 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace spool
