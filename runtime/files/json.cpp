#include "spool/runtime/files/json.h"

#include <ostream>
#include <set>
#include <vector>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t max_json_bytes = 1'000'000;
constexpr int64_t max_values = 1'000'000;

// What a parser finds, one after the other.  The base class wants these names.
class Strict : public nlohmann::json_sax<json> {
 public:
  Strict(const std::string& file, int max_depth) : file_(file), max_depth_(max_depth) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(int64_t) override { return count(); }
  bool number_unsigned(uint64_t) override { return count(); }
  bool number_float(double, const std::string&) override { return count(); }
  bool string(std::string&) override { return count(); }
  bool binary(json::binary_t&) override { return count(); }

  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(std::string& name) override {
    check_file(keys_.back().insert(name).second, file_, "its JSON has the key ", excerpt(name),
               " twice in one object");
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    throw Error(ErrorKind::file, sentence(file_, ": is not JSON: ", excerpt(std::string(e.what()))),
                {.needed = 0, .capacity = 0, .op = {}, .file = file_});
  }

 private:
  bool count() {
    check_file(++values_ <= max_values, file_, "its JSON has more than ", max_values, " values");
    return true;
  }

  bool enter() {
    check_file(std::ssize(keys_) < max_depth_, file_, "its JSON is nested deeper than ", max_depth_,
               " levels");
    keys_.emplace_back();
    return count();
  }

  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& file_;
  int max_depth_;
  int64_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open; none of an array
};

}  // namespace

json parse_json(std::string_view text, const std::string& file, int max_depth) {
  Strict strict(file, max_depth);
  json::sax_parse(text.begin(), text.end(), &strict);
  return json::parse(text.begin(), text.end());
}

json read_json(const std::filesystem::path& path) {
  return parse_json(read_text_file(path, max_json_bytes), path.string());
}

std::ostream& operator<<(std::ostream& out, const Excerpt& s) {
  constexpr size_t longest = 120;
  using Handler = json::error_handler_t;
  const std::string text = (s.value_ ? *s.value_ : json(std::string(s.name_.substr(0, longest))))
                               .dump(-1, ' ', /*ensure_ascii=*/true, Handler::replace);
  const bool whole = text.size() <= longest && s.name_.size() <= longest;
  return out << (whole ? text : text.substr(0, longest) + "...");
}

}  // namespace spool
