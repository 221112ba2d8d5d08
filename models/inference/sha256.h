#pragma once

// SHA-256 of FIPS 180-4, by which a text is known without a copy of it.  Other hashes of files are
// in runtime/hash.h and are faster.

#include <string>
#include <string_view>

namespace spool {

// In 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace spool
