#include "spool/planner/plan_file.h"

#include <charconv>
#include <map>
#include <sstream>
#include <type_traits>

#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr uint64_t max_plan_bytes = 32'000'000;
constexpr size_t columns = 100;

// ------------------------------------------------------------------------------------ to JSON

json range(int64_t first, int64_t last) {
  return first == last ? json(first) : json::array({first, last});
}

// Which of them are what, by the name of what they are; nothing of those that are the usual.
template <class T, class NameOf>
json grouped(const std::vector<T>& all, T usual, const char* length, NameOf name_of) {
  json groups = {{length, all.size()}};
  for (size_t first = 0, end = 0; first < all.size(); first = end) {
    while (end < all.size() && all[end] == all[first]) ++end;
    if (all[first] != usual) groups[name_of(all[first])].push_back(range(first, end - 1));
  }
  return groups;
}

json to_json(const Offload& o) {
  const Offload usual;
  json j = {{"value", o.value}};
  if (o.rows != usual.rows) j["rows"] = o.rows;
  if (o.target != usual.target) j["to"] = name(o.target);
  if (o.release != usual.release) j["release"] = o.release;
  if (o.fetch != usual.fetch) j["fetch"] = o.fetch;
  return j;
}

std::string in_hex(uint64_t fingerprint) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, fingerprint >>= 4) {
    *digit = "0123456789abcdef"[fingerprint & 15];
  }
  return digits;
}

void write(std::ostream&, const json&, size_t indent, size_t used);

void write_member(std::ostream& out, const std::string& key, const json& value,
                  const std::string& begin) {
  const std::string name = sentence(json(key), ": ");
  out << begin << name;
  write(out, value, begin.size() - 1, begin.size() - 1 + name.size());
}

// On one line if there is room, else a member of an object on each, and of a list as many as fit.
// The line has so many characters already.
void write(std::ostream& out, const json& j, size_t indent, size_t used) {
  const std::string line = j.dump();
  if (used + line.size() < columns || !j.is_structured()) {
    out << line;
    return;
  }
  const std::string begin = sentence('\n', std::string(indent + 2, ' '));
  used = columns;
  const char* comma = "";
  out << (j.is_object() ? '{' : '[');
  for (const auto& [key, item] : j.items()) {
    out << comma;
    comma = ",";
    if (j.is_object()) {
      write_member(out, key, item, begin);
      continue;
    }
    const std::string text = item.dump();
    used += 2 + text.size();
    const bool fits = used < columns;
    if (!fits) used = indent + 2 + text.size();
    out << (fits ? " " : begin) << text;
  }
  out << begin.substr(0, begin.size() - 2) << (j.is_object() ? '}' : ']');
}

std::string text_of(const Plan& plan) {
  std::ostringstream out;
  out << "{\n  \"spool_plan\": " << plan_version;
  json rest = to_json(plan);
  rest.erase("spool_plan");
  for (const auto& [key, value] : rest.items()) {
    out << ',';
    write_member(out, key, value, "\n  ");
  }
  out << "\n}\n";
  return out.str();
}

// ---------------------------------------------------------------------------------- from JSON

// A field of the file, or what is in one.
struct Field {
  const json& value;
  const std::string& file;
  std::string_view name;

  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    check_file(ok, file, '"', name, "\": ", parts...);
  }
  Field inside(const json& part) const { return {part, file, name}; }

  int64_t integer(int64_t least, int64_t most) const {
    const bool small = value.is_number_integer() &&
                       (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    check(most >= least, excerpt(value), " is one of none");
    check(small && value.get<int64_t>() >= least && value.get<int64_t>() <= most, excerpt(value),
          " is no whole number from ", least, " to ", most);
    return value.get<int64_t>();
  }

  const json& list() const {
    check(value.is_array(), excerpt(value), ", where a list was expected");
    return value;
  }

  Region pair(int64_t count) const {
    check(value.is_array() && value.size() == 2, excerpt(value),
          ", where the first and the last were expected, as in [3, 6]");
    const auto first = inside(value[0]).integer(0, count - 1);
    const auto last = inside(value[1]).integer(first, count - 1);
    return {.first = static_cast<NodeId>(first), .last = static_cast<NodeId>(last)};
  }
};

// What names an enumerator has.
template <class Enum>
Enum named(const Field& field, const std::string& word, std::initializer_list<Enum> all) {
  std::string known;
  for (const Enum e : all) {
    if (word == name(e)) return e;
    known.append(known.empty() ? "" : ", ").append(name(e));
  }
  field.check(false, excerpt(word), " is none of ", known);
  return {};
}

template <class Enum>
Enum named(const Field& field, std::initializer_list<Enum> all) {
  field.check(field.value.is_string(), excerpt(field.value), ", where a word was expected");
  return named(field, field.value.get<std::string>(), all);
}

template <class T, class Meaning>
std::vector<T> read_grouped(const Field& field, T usual, const std::string& length, Meaning of) {
  const bool is_object = field.value.is_object() && field.value.contains(length);
  field.check(is_object, "there is no \"", length, "\", which says for how many it is");
  const int64_t count = field.inside(field.value[length]).integer(0, max_plan_length);
  std::vector<T> all(static_cast<size_t>(count), usual);
  std::vector<bool> seen(all.size());
  for (const auto& [key, members] : field.value.items()) {
    if (key == length) continue;
    const T meaning = of(field, key);
    for (const json& member : field.inside(members).list()) {
      const Field one = field.inside(member);
      const auto single = [&] { return static_cast<NodeId>(one.integer(0, count - 1)); };
      const Region r = member.is_array() ? one.pair(count) : Region{single(), single()};
      for (NodeId i = r.first; i <= r.last; ++i) {
        const auto at = static_cast<size_t>(i);
        field.check(!seen[at], i, " is listed twice");
        seen[at] = true;
        all[at] = meaning;
      }
    }
  }
  return all;
}

int chunk_count(const Field& field, const std::string& key) {
  int n = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), n);
  field.check(error == std::errc() && n >= 0 && std::to_string(n) == key, excerpt(key),
              " is no number of chunks");
  return n;
}

void read_placement(Plan& plan, const Field& field) {
  plan.placement =
      read_grouped(field, Placement::keep, "values", [](const Field& in, const std::string& key) {
        return named(in, key, {Placement::keep, Placement::recompute, Placement::offload});
      });
}

void read_chunks(Plan& plan, const Field& field) {
  plan.chunks = read_grouped(field, 1, "nodes", chunk_count);
}

Offload read_offload(const Field& field) {
  field.check(field.value.is_object() && field.value.contains("value"), excerpt(field.value),
              ", where an offload was expected, as in {\"value\": 3, \"rows\": 512}");
  Offload o;
  for (const auto& [key, value] : field.value.items()) {
    const Field part = field.inside(value);
    const auto id = [&](int64_t least) {
      return static_cast<int32_t>(part.integer(least, max_plan_length - 1));
    };
    if (key == "value") {
      o.value = id(0);
    } else if (key == "rows") {
      o.rows = part.integer(-1, INT64_MAX);
    } else if (key == "to") {
      o.target = named(part, {OffloadTarget::host, OffloadTarget::disk});
    } else if (key == "release") {
      o.release = id(-1);
    } else {
      field.check(key == "fetch", "an offload has no ", excerpt(key));
      o.fetch = id(-1);
    }
  }
  return o;
}

void read_offloads(Plan& plan, const Field& field) {
  for (const json& o : field.list()) plan.offloads.push_back(read_offload(field.inside(o)));
}

void read_regions(Plan& plan, const Field& field) {
  for (const json& r : field.list()) {
    plan.regions.push_back(field.inside(r).pair(max_plan_length));
  }
}

void read_optimizer_state(Plan& plan, const Field& field) {
  using enum OptimizerState;
  plan.optimizer_state = named(field, {device, streamed, cpu});
}

void read_fingerprints(Plan& plan, const Field& field) {
  const json& list = field.list();
  field.check(std::ssize(list) <= max_plan_length, list.size(), " nodes, more than ",
              max_plan_length);
  for (const json& j : list) {
    const std::string digits = j.is_string() ? j.get<std::string>() : "";
    const char* end = digits.data() + digits.size();
    uint64_t fingerprint = 0;
    std::from_chars(digits.data(), end, fingerprint, /*base=*/16);
    field.check(in_hex(fingerprint) == digits, excerpt(j), " is not 16 digits of 0-9 and a-f");
    plan.fingerprints.push_back(fingerprint);
  }
}

using Reader = void (*)(Plan&, const Field&);

const std::map<std::string_view, Reader>& readers() {
  static const std::map<std::string_view, Reader> all = {
      {"chunks", read_chunks},
      {"offloads", read_offloads},
      {"placement", read_placement},
      {"optimizer_state", read_optimizer_state},
      {"regions", read_regions},
      {"tape_fingerprints", read_fingerprints},
      {"spool_plan", [](Plan&, const Field&) {}},
  };
  return all;
}

}  // namespace

json to_json(const Plan& plan) {
  json j = {{"spool_plan", plan_version}};
  if (!plan.placement.empty()) {
    j["placement"] = grouped(plan.placement, Placement::keep, "values",
                             [](Placement p) { return std::string(name(p)); });
  }
  for (const Offload& o : plan.offloads) j["offloads"].push_back(to_json(o));
  if (!plan.chunks.empty()) {
    j["chunks"] = grouped(plan.chunks, 1, "nodes", [](int n) { return std::to_string(n); });
  }
  for (const Region& r : plan.regions) j["regions"].push_back({r.first, r.last});
  if (plan.optimizer_state != OptimizerState::device) {
    j["optimizer_state"] = name(plan.optimizer_state);
  }
  for (const uint64_t f : plan.fingerprints) j["tape_fingerprints"].push_back(in_hex(f));
  return j;
}

Plan plan_from_json(const json& j, const std::string& file) {
  check_file(j.is_object() && j.contains("spool_plan"), file,
             "is no plan: a plan is a JSON object that has \"spool_plan\"");
  const json& version = j["spool_plan"];
  check_file(version.is_number_integer() && version == plan_version, file, "is a plan of version ",
             excerpt(version), ", and this program reads version ", plan_version,
             "; make the plan anew");
  Plan plan;
  for (const auto& [key, value] : j.items()) {
    const auto reader = readers().find(key);
    check_file(reader != readers().end(), file, "a plan has no field ", excerpt(key));
    reader->second(plan, {value, file, reader->first});
  }
  try {
    check_plan(plan);
  } catch (const Error& e) {
    check_file(false, file, e.what());
  }
  return plan;
}

void save_plan(const std::filesystem::path& path, const Plan& plan) {
  const std::string text = text_of(plan);
  const std::string file = path.string();
  check_file(text.size() <= max_plan_bytes && plan_from_json(parse_json(text, file), file) == plan,
             file, "would be a plan that cannot be read again: it is too large");
  write_text_file_atomically(path, text);
}

Plan load_plan(const std::filesystem::path& path) {
  const std::string file = path.string();
  return plan_from_json(parse_json(read_text_file(path, max_plan_bytes), file), file);
}

}  // namespace spool
