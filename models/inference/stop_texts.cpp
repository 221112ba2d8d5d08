#include "spool/models/inference/stop_texts.h"

#include <algorithm>
#include <utility>

namespace spool {

std::string StopTexts::add(std::string_view part) {
  if (found_) return "";
  held_ += part;
  size_t end = held_.size();  // of what can be returned
  size_t stop = std::string::npos;
  for (const std::string& text : texts_) {
    stop = std::min(stop, held_.find(text));
    // The longest prefix of the stop text that ends what is held.
    for (size_t n = std::min(text.size() - 1, held_.size()); n > 0; --n) {
      if (std::string_view(held_).ends_with(std::string_view(text).substr(0, n))) {
        end = std::min(end, held_.size() - n);
        break;
      }
    }
  }
  found_ = stop != std::string::npos;
  std::string known = held_.substr(0, found_ ? stop : end);
  held_.erase(0, found_ ? held_.size() : end);
  return known;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace spool
