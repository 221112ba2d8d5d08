// Keeps each line as nlohmann's JSON.

#include "spool/models/data/json_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/runtime/units.h"

namespace spool {

std::optional<std::string> JsonLines::next_line() {
  constexpr size_t max_line_bytes = size_t{16} << 20;
  for (;;) {
    const size_t end = held_.find('\n', searched_);
    if (end != held_.npos || (at_ == file_.size() && begin_ < held_.size())) {
      std::string line = held_.substr(begin_, end == held_.npos ? end : end - begin_);
      begin_ = searched_ = std::min(end, held_.size() - 1) + 1;
      if (number_++ == 0 && line.starts_with(utf8_mark)) line.erase(0, utf8_mark.size());
      return line;
    }
    if (at_ == file_.size()) return {};
    held_.erase(0, begin_);
    begin_ = 0;
    searched_ = held_.size();
    check_file(searched_ <= max_line_bytes, path_, "line ", number_ + 1, " has more than ",
               format_bytes(max_line_bytes), "; an example is a line of its own");
    read_block();
  }
}

void JsonLines::read_block() {
  constexpr uint64_t block = uint64_t{1} << 20;
  const uint64_t bytes = std::min(block, file_.size() - at_);
  held_.resize(searched_ + bytes);
  file_.read(at_, std::as_writable_bytes(std::span(held_).subspan(searched_)));
  at_ += bytes;
}

std::optional<JsonField> JsonLines::next() {
  while (const auto line = next_line()) {
    if (line->find_first_not_of(" \t\r") == line->npos) continue;
    JsonField object = parse_json(*line, sentence(path_.string(), ", line ", number_));
    object.expect(object.value().is_object(), "is no JSON object");
    return object;
  }
  return {};
}

}  // namespace spool
