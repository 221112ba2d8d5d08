#include "spool/runtime/memory/label.h"

#include <mutex>
#include <ostream>
#include <unordered_set>

namespace spool {
namespace {

const char* find_or_add(std::string_view text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.emplace(text).first->c_str();
}

}  // namespace

Name::Name(std::string_view text) : text_(find_or_add(text)) {}

std::ostream& operator<<(std::ostream& out, Name name) { return out << name.text_; }

}  // namespace spool
