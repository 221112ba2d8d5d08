#pragma once

// Finds where a text that comes in parts ends: before the first of some texts, which may be in
// several parts.

#include <string>
#include <string_view>
#include <vector>

namespace spool {

class StopTexts {
 public:
  // None of them is empty.
  explicit StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // What is known to come before an end; a part of a text that may be found is held back.
  std::string add(std::string_view part);
  bool found() const { return found_; }
  // What was held back, if the text ends without one.
  std::string finish();

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool found_ = false;
};

}  // namespace spool
