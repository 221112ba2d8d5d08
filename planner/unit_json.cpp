#include "spool/planner/unit_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "spool/planner/plan_json.h"
#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

constexpr const char *parameters_word = "parameters", *gradients_word = "gradients";

}  // namespace

json to_json(const PlannedUnit& u) {
  json j = {{"nodes", {u.first, u.last}},
            {"parameters", u.parameters},
            {"first_readers", u.first_readers},
            {"fetch", {u.forward_fetch, u.backward_fetch}}};
  if (u.parameters_away) j["away"].push_back(parameters_word);
  if (u.gradients_away) j["away"].push_back(gradients_word);
  if (u.stays) j["stays"] = true;
  if (!u.in_backward) j["in_backward"] = false;
  if (u.all_in_forward) j["all_in_forward"] = true;
  return j;
}

namespace {

void read_away(PlannedUnit& unit, const JsonField& list) {
  for (const JsonField& item : list.items()) {
    const std::string word = item.is_string() ? item.string() : "";
    item.expect(word == parameters_word || word == gradients_word, excerpt(item.value()),
                " is neither \"parameters\" nor \"gradients\"");
    (word == parameters_word ? unit.parameters_away : unit.gradients_away) = true;
  }
}

template <class Int>
std::vector<Int> read_numbers(const JsonField& list) {
  const std::vector<JsonField> items = list.items();
  list.expect(std::ssize(items) <= max_plan_length, "there are ", items.size(), ", and at most ",
              max_plan_length, " are read");
  std::vector<Int> all;
  for (const JsonField& item : items) all.push_back(item.integer<Int>(0, max_plan_length - 1));
  return all;
}

}  // namespace

PlannedUnit unit_from_json(const JsonField& field) {
  const auto nodes = read_numbers<NodeId>(field.member("nodes"));
  field.expect(nodes.size() == 2, "nodes has ", nodes.size(),
               " numbers; it has a first and a last one");
  const auto fetch = read_numbers<NodeId>(field.member("fetch"));
  field.expect(fetch.size() == 2, "fetch has ", fetch.size(),
               " numbers; it has a node of forward and one of backward");
  PlannedUnit unit{.first = nodes[0],
                   .last = nodes[1],
                   .parameters = read_numbers<uint32_t>(field.member("parameters")),
                   .first_readers = read_numbers<NodeId>(field.member("first_readers")),
                   .forward_fetch = fetch[0],
                   .backward_fetch = fetch[1]};
  for (const JsonField& f : field.members()) {
    constexpr std::string_view read[] = {"nodes", "fetch", "parameters", "first_readers"};
    if (std::ranges::find(read, f.key()) != std::end(read)) continue;
    if (f.key() == "away") {
      read_away(unit, f);
    } else if (f.key() == "stays") {
      unit.stays = f.boolean();
    } else if (f.key() == "in_backward") {
      unit.in_backward = f.boolean();
    } else if (f.key() == "all_in_forward") {
      unit.all_in_forward = f.boolean();
    } else {
      field.refuse("a unit has no ", excerpt(f.key()),
                   "; it has nodes, parameters, first_readers, ",
                   "fetch, away, stays, in_backward and all_in_forward");
    }
  }
  return unit;
}

}  // namespace spool
