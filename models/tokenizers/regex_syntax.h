#pragma once

// Translates a regular expression of a tokenizer.json for PCRE2 with PCRE2_UTF but without
// PCRE2_UCP, so that it matches what Oniguruma does.  regex_pieces.h lists what is supported.

#include <string>
#include <string_view>

namespace spool {

// Throws an Error that names an unsupported part.
std::string in_pcre2(std::string_view expression);

}  // namespace spool
