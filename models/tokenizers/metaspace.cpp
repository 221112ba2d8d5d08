#include "spool/models/tokenizers/metaspace.h"

#include <algorithm>

namespace spool {

std::string_view Metaspace::apply(std::string_view text, TextPlace place,
                                  std::string& buffer) const {
  const bool prepends = place == TextPlace::begin         ? prepend != Prepend::never
                        : place == TextPlace::after_token ? prepend == Prepend::always
                                                          : false;
  buffer.clear();
  if (prepends && !text.starts_with(' ') && !text.starts_with(blank)) buffer += blank;
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(' ', at), text.size());
    buffer += text.substr(at, found - at);
    if (found < text.size()) buffer += blank;
    at = found + 1;
  }
  return buffer;
}

}  // namespace spool
