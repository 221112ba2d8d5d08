#pragma once

// Ends a text that comes in parts before the first of some stop texts, which may span several
// parts.

#include <string>
#include <string_view>
#include <vector>

namespace spool {

class StopTexts {
 public:
  // None of them may be empty.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // Returns what is known to precede the end; holds back a possible beginning of a stop text.
  std::string add(std::string_view part);
  bool found() const { return found_; }
  // What was held back, when the text ends without a stop text.
  std::string finish();

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace spool
