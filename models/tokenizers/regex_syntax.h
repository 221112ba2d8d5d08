#pragma once

// Spells a regular expression of a tokenizer.json so that PCRE2 with PCRE2_UTF, but without
// PCRE2_UCP, matches what Oniguruma does.  What is supported is in regex_pieces.h.

#include <string>
#include <string_view>

namespace spool {

// Throws an Error that names what is not supported.
std::string in_pcre2(std::string_view expression);

}  // namespace spool
