#include "spool/planner/plan_json.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "spool/planner/unit_json.h"
#include "spool/runtime/files/json.h"

namespace spool {

using nlohmann::json;

namespace {

// Indices of values or nodes.
struct IndexRange {
  int32_t first = 0, last = 0;
};

json range_to_json(int64_t first, int64_t last) {
  return first == last ? json(first) : json::array({first, last});
}

// Lists the indices of all elements but those equal to `usual`, under each element's name, and the
// number of elements under `length`.
template <class T, class NameOf>
json group(const std::vector<T>& elements, T usual, const char* length, NameOf name_of) {
  json groups = {{length, elements.size()}};
  for (size_t first = 0, end = 0; first < elements.size(); first = end) {
    while (end < elements.size() && elements[end] == elements[first]) ++end;
    if (elements[first] == usual) continue;
    groups[name_of(elements[first])].push_back(range_to_json(first, end - 1));
  }
  return groups;
}

json offload_to_json(const Offload& o) {
  const Offload usual;
  json j = {{"value", o.value}};
  if (o.rows != usual.rows) j["rows"] = o.rows;
  if (o.target != usual.target) j["to"] = name(o.target);
  if (o.release != usual.release) j["release"] = o.release;
  if (o.fetch != usual.fetch) j["fetch"] = o.fetch;
  return j;
}

// A region of one chunk has no leaves; with leaves it is written in full, and refused when read.
bool is_plain(const Region& r) { return r.chunks == 1 && r.leaves.empty(); }

json region_to_json(const Region& r) {
  const json nodes = json::array({r.first, r.last});
  if (is_plain(r)) return nodes;
  json leaves = json::array();
  for (size_t first = 0, end = 0; first < r.leaves.size(); first = end) {
    end = first + 1;
    while (end < r.leaves.size() && r.leaves[end] - int64_t{r.leaves[end - 1]} == 1) ++end;
    leaves.push_back(range_to_json(r.leaves[first], r.leaves[end - 1]));
  }
  return {{"nodes", nodes}, {"chunks", r.chunks}, {"leaves", std::move(leaves)}};
}

std::string to_hex(uint64_t fingerprint) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, fingerprint >>= 4) {
    *digit = "0123456789abcdef"[fingerprint & 15];
  }
  return digits;
}

// [first, last], within [0, count).
IndexRange read_range(const JsonField& field, int64_t count) {
  const std::vector<JsonField> ends = field.is_list() ? field.items() : std::vector<JsonField>{};
  field.expect(ends.size() == 2, excerpt(field.value()), " is not [first, last], as in [3, 6]");
  const auto first = ends[0].integer<NodeId>(0, static_cast<NodeId>(count - 1));
  return {.first = first, .last = ends[1].integer<NodeId>(first, static_cast<NodeId>(count - 1))};
}

// An index or a range of them.
IndexRange read_indices(const JsonField& field, int64_t count) {
  field.expect(count > 0, excerpt(field.value()), " is listed, and there are 0");
  if (field.is_list()) return read_range(field, count);
  const auto index = field.integer<NodeId>(0, static_cast<NodeId>(count - 1));
  return {.first = index, .last = index};
}

// Reads the result of group(); element_of(group) is the element that its name stands for.
template <class T, class ElementOf>
std::vector<T> read_groups(const JsonField& field, T usual, const char* length,
                           ElementOf element_of) {
  const auto count = field.member(length).integer<int64_t>(0, max_plan_length);
  std::vector<T> elements(static_cast<size_t>(count), usual);
  std::vector<bool> listed(elements.size());
  for (const JsonField& group : field.members()) {
    if (group.key() == length) continue;
    const T element = element_of(group);
    for (const JsonField& indices : group.items()) {
      const IndexRange r = read_indices(indices, count);
      for (auto i = static_cast<size_t>(r.first); i <= static_cast<size_t>(r.last); ++i) {
        indices.expect(!listed[i], i, " is listed twice");
        listed[i] = true;
        elements[i] = element;
      }
    }
  }
  return elements;
}

Placement placement_of(const JsonField& group) {
  const auto placement = parse<Placement>(group.key());
  group.expect(placement.has_value(), excerpt(group.key()), " is none of ", list_of<Placement>());
  return *placement;
}

int chunk_count_of(const JsonField& group) {
  const std::string& digits = group.key();
  int n = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  group.expect(error == std::errc() && n >= 0 && std::to_string(n) == digits, excerpt(digits),
               " is not a number of chunks");
  return n;
}

Offload read_offload(const JsonField& field) {
  Offload o;
  o.value = field.member("value").integer<ValueId>(0, max_plan_length - 1);
  const auto read_node = [](const JsonField& f) {
    return f.integer<NodeId>(-1, max_plan_length - 1);
  };
  for (const JsonField& f : field.members()) {
    if (f.key() == "value") continue;
    if (f.key() == "rows") {
      o.rows = f.integer<int64_t>(-1);
    } else if (f.key() == "to") {
      o.target = f.enumerator<OffloadTarget>();
    } else if (f.key() == "release") {
      o.release = read_node(f);
    } else if (f.key() == "fetch") {
      o.fetch = read_node(f);
    } else {
      field.refuse("an offload has no ", excerpt(f.key()));
    }
  }
  return o;
}

// Counts the leaves of all regions in `count`, to bound the memory that a small file can take.
std::vector<ValueId> read_leaves(const JsonField& field, int64_t& count) {
  std::vector<ValueId> leaves;
  for (const JsonField& indices : field.items()) {
    const IndexRange r = read_indices(indices, max_plan_length);
    count += r.last - r.first + 1;
    field.expect(count <= max_plan_length, "with those of the regions before, there are ", count,
                 " leaves, and at most ", max_plan_length, " are read; list each value once");
    for (ValueId v = r.first; v <= r.last; ++v) leaves.push_back(v);
  }
  return leaves;
}

Region read_region_in_chunks(const JsonField& field, int64_t& leaf_count) {
  const IndexRange nodes = read_range(field.member("nodes"), max_plan_length);
  Region region{.first = nodes.first,
                .last = nodes.last,
                .chunks = field.member("chunks").integer<int>(2),
                .leaves = read_leaves(field.member("leaves"), leaf_count)};
  for (const JsonField& f : field.members()) {
    field.expect(f.key() == "nodes" || f.key() == "chunks" || f.key() == "leaves",
                 "a region has no ", excerpt(f.key()), "; it has nodes, chunks and leaves");
  }
  return region;
}

void read_regions(Plan& plan, const JsonField& list, int version) {
  int64_t leaf_count = 0;
  for (const JsonField& field : list.items()) {
    if (!field.value().is_object()) {
      const IndexRange nodes = read_range(field, max_plan_length);
      plan.regions.push_back({.first = nodes.first, .last = nodes.last});
      continue;
    }
    field.expect(version > 1, excerpt(field.value()), " is a region in chunks, which a plan of ",
                 "version 1 cannot have; write \"spool_plan\": 2 in its file");
    plan.regions.push_back(read_region_in_chunks(field, leaf_count));
  }
}

uint64_t read_fingerprint(const JsonField& field) {
  const std::string digits = field.is_string() ? field.string() : "";
  uint64_t fingerprint = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), fingerprint, /*base=*/16);
  field.expect(to_hex(fingerprint) == digits, excerpt(field.value()),
               " is not 16 digits of 0-9 and a-f");
  return fingerprint;
}

void read_fingerprints(Plan& plan, const JsonField& list) {
  const std::vector<JsonField> all = list.items();
  list.expect(std::ssize(all) <= max_plan_length, "there are ", all.size(), ", and at most ",
              max_plan_length, " are read");
  for (const JsonField& f : all) plan.fingerprints.push_back(read_fingerprint(f));
}

constexpr auto max_stored_bytes = static_cast<size_t>(std::numeric_limits<int64_t>::max());

PlannedFor read_planned_for(const JsonField& field) {
  for (const JsonField& f : field.members()) {
    constexpr std::string_view all[] = {"budget_bytes", "loss_rows", "machine", "mlp_rows",
                                        "peak_bytes"};
    field.expect(std::ranges::find(all, f.key()) != std::end(all), "there is no ", excerpt(f.key()),
                 "; there are budget_bytes, loss_rows, machine, mlp_rows and ", "peak_bytes");
  }
  const JsonField machine = field.member("machine");
  PlannedFor made_for{.loss_rows = field.member("loss_rows").integer<int64_t>(0),
                      .mlp_rows = field.member("mlp_rows").integer<int64_t>(0),
                      .budget = field.member("budget_bytes").integer<size_t>(0, max_stored_bytes),
                      .peak = field.member("peak_bytes").integer<size_t>(0, max_stored_bytes),
                      .machine = machine.string()};
  machine.expect(made_for.machine.size() <= max_machine_name, "the name has ",
                 made_for.machine.size(), " bytes, and at most ", max_machine_name, " are read");
  return made_for;
}

json to_json(const PlannedFor& p) {
  return {{"budget_bytes", p.budget},
          {"loss_rows", p.loss_rows},
          {"machine", p.machine},
          {"mlp_rows", p.mlp_rows},
          {"peak_bytes", p.peak}};
}

void expect_version(int oldest, const JsonField& field, int version) {
  field.expect(version >= oldest, "a plan of version ", version, " cannot have this; write ",
               "\"spool_plan\": ", oldest, " in its file");
}

void read_plan_field(StoredPlan& stored, const JsonField& field, int version) {
  Plan& plan = stored.plan;
  const std::string& key = field.key();
  if (key == "chunks") {
    plan.chunks = read_groups(field, 1, "nodes", chunk_count_of);
  } else if (key == "offloads") {
    for (const JsonField& o : field.items()) plan.offloads.push_back(read_offload(o));
  } else if (key == "placement") {
    plan.placement = read_groups(field, Placement::keep, "values", placement_of);
  } else if (key == "optimizer_state") {
    plan.optimizer_state = field.enumerator<OptimizerState>();
  } else if (key == "regions") {
    read_regions(plan, field, version);
  } else if (key == "tape_fingerprints") {
    read_fingerprints(plan, field);
  } else if (key == "state_bytes_on_device") {
    expect_version(3, field, version);
    plan.state_bytes_on_device = field.integer<size_t>(0, max_stored_bytes);
  } else if (key == "buckets_in_flight") {
    expect_version(4, field, version);
    plan.buckets_in_flight = field.integer<int>(2, 1000);
  } else if (key == "units") {
    expect_version(5, field, version);
    for (const JsonField& unit : field.items()) plan.units.push_back(unit_from_json(unit));
  } else if (key == "update") {
    expect_version(5, field, version);
    plan.update = field.enumerator<UpdateTime>();
  } else if (key == "units_leaving") {
    expect_version(5, field, version);
    plan.units_leaving = field.number();
  } else if (key == "bucket_elements") {
    expect_version(5, field, version);
    plan.bucket_elements = field.integer<int64_t>(2048);
  } else if (key == "made_for") {
    expect_version(3, field, version);
    stored.made_for = read_planned_for(field);
  } else {
    check_file(key == "spool_plan", field.file(), "a plan has no field ", excerpt(key));
  }
}

int read_version(const JsonField& root) {
  const json& version = root.value()["spool_plan"];
  root.expect(version.is_number_integer() && version >= 1 && version <= newest_plan_version,
              "is a plan of version ", excerpt(version), ", and this program reads versions up to ",
              newest_plan_version, "; make the plan again with this program");
  return version.get<int>();
}

int oldest_version(const StoredPlan& stored) {
  const Plan& plan = stored.plan;
  const bool has_units = !plan.units.empty() || plan.units_leaving != Plan{}.units_leaving;
  if (has_units || plan.bucket_elements > 0 || plan.update != UpdateTime::end) return 5;
  if (stored.plan.buckets_in_flight > 0) return 4;
  if (stored.made_for || stored.plan.state_bytes_on_device > 0) return 3;
  return std::ranges::all_of(stored.plan.regions, is_plain) ? 1 : 2;
}

}  // namespace

json to_json(const StoredPlan& stored) {
  const Plan& plan = stored.plan;
  json j = {{"spool_plan", oldest_version(stored)}};
  if (!plan.placement.empty()) {
    j["placement"] = group(plan.placement, Placement::keep, "values",
                           [](Placement p) { return std::string(name(p)); });
  }
  for (const Offload& o : plan.offloads) j["offloads"].push_back(offload_to_json(o));
  if (!plan.chunks.empty()) {
    j["chunks"] = group(plan.chunks, 1, "nodes", [](int n) { return std::to_string(n); });
  }
  for (const Region& r : plan.regions) j["regions"].push_back(region_to_json(r));
  if (plan.optimizer_state != OptimizerState::device) {
    j["optimizer_state"] = name(plan.optimizer_state);
  }
  if (plan.state_bytes_on_device > 0) j["state_bytes_on_device"] = plan.state_bytes_on_device;
  for (const PlannedUnit& u : plan.units) j["units"].push_back(to_json(u));
  if (plan.update != UpdateTime::end) j["update"] = name(plan.update);
  if (plan.units_leaving != Plan{}.units_leaving) j["units_leaving"] = plan.units_leaving;
  if (plan.bucket_elements > 0) j["bucket_elements"] = plan.bucket_elements;
  if (plan.buckets_in_flight > 0) j["buckets_in_flight"] = plan.buckets_in_flight;
  if (stored.made_for) j["made_for"] = to_json(*stored.made_for);
  for (const uint64_t f : plan.fingerprints) j["tape_fingerprints"].push_back(to_hex(f));
  return j;
}

StoredPlan plan_from_json(const JsonField& root) {
  const json& j = root.value();
  root.expect(j.is_object() && j.contains("spool_plan"),
              "is not a plan: a plan is a JSON object that has \"spool_plan\"");
  const int version = read_version(root);
  StoredPlan stored;
  for (const JsonField& field : root.members()) read_plan_field(stored, field, version);
  try {
    check_plan(stored.plan);
  } catch (const Error& e) {
    root.refuse(e.what());
  }
  return stored;
}

json to_json(const std::vector<NodesInChunks>& all) {
  json list = json::array();
  for (const auto& [first, last, chunks] : all) list.push_back({first, last, chunks});
  return list;
}

std::vector<NodesInChunks> nodes_in_chunks_from_json(const JsonField& list) {
  std::vector<NodesInChunks> all;
  for (const JsonField& item : list.items()) {
    const auto numbers = item.items();
    item.expect(numbers.size() == 3, "a first and a last node and a number of chunks");
    all.push_back({.first = numbers[0].integer<NodeId>(),
                   .last = numbers[1].integer<NodeId>(),
                   .chunks = numbers[2].integer<int>()});
  }
  return all;
}

}  // namespace spool
