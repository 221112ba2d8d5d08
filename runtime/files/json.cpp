#include "spool/runtime/files/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <utility>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/file_kind.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t max_json_bytes = 1'000'000;

// "line 3, column 5": the character that ends the first `read` bytes.
std::string place_in(std::string_view text, size_t read) {
  const std::string_view before =
      text.substr(0, std::min(std::max<size_t>(read, 1) - 1, text.size()));
  const size_t newline = before.rfind('\n');
  const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  return sentence("line ", 1 + std::ranges::count(before, '\n'), ", column ",
                  1 + before.size() - begin);
}

// The parser's message without its name, its context and the text that it read last.
std::string reason_of(const nlohmann::detail::exception& e) {
  std::string reason = e.what();
  if (reason.find("number overflow") != std::string::npos) return "the number is too large";
  if (const size_t at = reason.find(" - "); at != std::string::npos) reason.erase(0, at + 3);
  const size_t excerpt = reason.find("; last read: "), expected = reason.rfind("; expected ");
  if (excerpt != std::string::npos) {
    const bool is_after = expected != std::string::npos && expected > excerpt;
    reason.erase(excerpt, is_after ? expected - excerpt : std::string::npos);
  }
  return reason;
}

// Checks each event of the parser.  The functions' names are the base class's.
class JsonLimits : public nlohmann::json_sax<json> {
 public:
  JsonLimits(std::string_view text, const std::string& file, int max_depth, int64_t max_values)
      : text_(text), file_(file), max_depth_(max_depth), max_values_(max_values) {}

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
    check_file(open_keys_.back().insert(name).second, file_, "its JSON has the key ", excerpt(name),
               " twice in one object");
    return true;
  }

  bool parse_error(size_t read, const std::string&, const nlohmann::detail::exception& e) override {
    check_file(false, file_, "is not JSON: ", place_in(text_, read), ": ", reason_of(e));
    return false;
  }

 private:
  bool count() {
    check_file(++values_ <= max_values_, file_, "its JSON has more than ", max_values_, " values");
    return true;
  }

  bool enter() {
    check_file(std::ssize(open_keys_) < max_depth_, file_, "its JSON is nested deeper than ",
               max_depth_, " levels");
    open_keys_.emplace_back();
    return count();
  }

  bool leave() {
    open_keys_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  int max_depth_;
  int64_t max_values_, values_ = 0;
  std::vector<std::set<std::string>> open_keys_;  // of each open object; empty for an open list
};

bool is_plain(std::string_view key) {
  constexpr size_t max_plain_key = 60;
  return !key.empty() && key.size() <= max_plain_key && std::ranges::all_of(key, [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') || c == '_' ||
           c == '-';
  });
}

std::string member_path(const std::string& object, const std::string& key) {
  return sentence(object, object.empty() ? "" : ".", is_plain(key) ? key : sentence(excerpt(key)));
}

// Whether it is a whole number in [min, max].  The parser makes whole numbers unsigned unless they
// are negative.
template <class T>
bool is_integer_in(const json& value, T min, T max) {
  const auto fits = [&](auto n) {
    return std::cmp_less_equal(min, n) && std::cmp_less_equal(n, max);
  };
  if (!value.is_number_integer()) return false;
  return value.is_number_unsigned() ? fits(value.get<uint64_t>()) : fits(value.get<int64_t>());
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Excerpt& s) {
  constexpr size_t max_length = 120;
  using Handler = json::error_handler_t;
  const std::string text = (s.value_ ? *s.value_ : json(std::string(s.name_.substr(0, max_length))))
                               .dump(-1, ' ', /*ensure_ascii=*/true, Handler::replace);
  const bool whole = text.size() <= max_length && s.name_.size() <= max_length;
  return out << (whole ? text : text.substr(0, max_length) + "...");
}

struct JsonField::Whole {
  json value;
  std::string file;
};

JsonField::JsonField(json whole, std::string file)
    : whole_(std::make_shared<Whole>(Whole{std::move(whole), std::move(file)})),
      value_(&whole_->value) {}

JsonField::JsonField(std::shared_ptr<const JsonField> parent, const std::string* key, size_t index,
                     const json& value)
    : whole_(parent->whole_),
      parent_(std::move(parent)),
      key_(key),
      index_(index),
      value_(&value) {}

const std::string& JsonField::file() const { return whole_->file; }

const std::string& JsonField::key() const {
  static const std::string none;
  return key_ ? *key_ : none;
}

std::string JsonField::path() const {
  if (!parent_) return {};
  const std::string parent = parent_->path();
  return key_ ? member_path(parent, *key_) : sentence(parent, '[', index_, ']');
}

void JsonField::fail_about(const std::string& path, const std::string& complaint) const {
  const std::string subject = path.empty() ? "" : "field " + path + ": ";
  throw Error(ErrorKind::file, sentence(file(), ": ", subject, complaint), {.file = file()});
}

void JsonField::expect_object() const {
  expect(value_->is_object(), excerpt(*value_), " is not a JSON object");
}

std::optional<JsonField> JsonField::find(const char* key) const {
  expect_object();
  const auto found = value_->find(key);
  if (found == value_->end()) return {};
  return JsonField(std::make_shared<JsonField>(*this), &found.key(), 0, *found);
}

std::optional<JsonField> JsonField::present(const char* key) const {
  auto field = find(key);
  if (field && field->is_null()) field.reset();
  return field;
}

bool JsonField::flag(const char* key, bool absent) const {
  const auto field = present(key);
  return field ? field->boolean() : absent;
}

JsonField JsonField::member(const char* key) const {
  if (const auto found = find(key)) return *found;
  fail_about({}, sentence("field ", member_path(path(), key), " is missing"));
}

std::vector<JsonField> JsonField::members() const {
  expect_object();
  const auto parent = std::make_shared<JsonField>(*this);
  std::vector<JsonField> all;
  all.reserve(value_->size());
  for (auto at = value_->begin(); at != value_->end(); ++at) {
    all.push_back(JsonField(parent, &at.key(), 0, *at));
  }
  return all;
}

std::vector<JsonField> JsonField::items() const {
  expect(value_->is_array(), excerpt(*value_), " is not a list");
  const auto parent = std::make_shared<JsonField>(*this);
  std::vector<JsonField> all;
  all.reserve(value_->size());
  for (const json& item : *value_) all.push_back(JsonField(parent, nullptr, all.size(), item));
  return all;
}

int64_t JsonField::signed_integer(int64_t min, int64_t max) const {
  expect(is_integer_in(*value_, min, max), excerpt(*value_), " is not a whole number from ", min,
         " to ", max);
  return value_->get<int64_t>();
}

uint64_t JsonField::unsigned_integer(uint64_t min, uint64_t max) const {
  expect(is_integer_in(*value_, min, max), excerpt(*value_), " is not a whole number from ", min,
         " to ", max);
  return value_->get<uint64_t>();
}

double JsonField::number() const {
  expect(value_->is_number(), excerpt(*value_), " is not a number");
  return value_->get<double>();
}

bool JsonField::boolean() const {
  expect(value_->is_boolean(), excerpt(*value_), " is not true or false");
  return value_->get<bool>();
}

std::string JsonField::string() const {
  expect(value_->is_string(), excerpt(*value_), " is not a string");
  return value_->get<std::string>();
}

bool JsonField::is_null() const { return value_->is_null(); }
bool JsonField::is_list() const { return value_->is_array(); }
bool JsonField::is_string() const { return value_->is_string(); }

bool is_utf8(std::string_view text) {
  try {
    (void)json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

JsonField parse_json(std::string_view text, const std::string& file, int max_depth,
                     int64_t max_values) {
  if (const auto kind = file_kind(text.substr(0, bytes_of_file_kind))) {
    check_file(/*ok=*/false, file, kind->what, ", not JSON; ", kind->as_model);
  }
  JsonLimits limits(text, file, max_depth, max_values);
  json::sax_parse(text.begin(), text.end(), &limits);
  return {json::parse(text.begin(), text.end()), file};
}

JsonField read_json(const std::filesystem::path& path) {
  return parse_json(read_text_file(path, max_json_bytes), path.string());
}

}  // namespace spool
