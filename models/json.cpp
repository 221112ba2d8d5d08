#include "spool/models/json.h"

#include <set>
#include <vector>

#include "spool/models/file.h"
#include "spool/runtime/check.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t max_json_bytes = 100'000'000;

// Follows the parser, which by itself neither limits depth nor minds a key that comes twice.
class Strict {
 public:
  Strict(const std::string& file, int max_depth) : file_(file), max_depth_(max_depth) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      check_file(depth < max_depth_, file_, "its JSON is nested deeper than ", max_depth_,
                 " levels");
      if (event == Event::object_start) keys_.emplace_back();
    }
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      check_file(keys_.back().insert(key).second, file_, "its JSON has the key \"", key,
                 "\" twice in one object");
    }
    return true;
  }

 private:
  const std::string& file_;
  int max_depth_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

json parse_json(std::string_view text, const std::string& file, int max_depth) {
  Strict strict(file, max_depth);
  try {
    return json::parse(text.begin(), text.end(), std::ref(strict));
  } catch (const json::exception& e) {
    throw Error(ErrorKind::file, sentence(file, ": is not JSON: ", e.what()),
                {.needed = 0, .capacity = 0, .op = {}, .file = file});
  }
}

json read_json(const std::filesystem::path& path) {
  return parse_json(read_text_file(path, max_json_bytes), path.string());
}

}  // namespace spool
