// Reads and writes the table's JSON.

#include "spool/planner/machines/device_table.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "spool/planner/machines/measured_device.h"
#include "spool/runtime/files/file.h"

namespace spool {
namespace {

using nlohmann::json;

constexpr int table_version = 1;
constexpr uint64_t max_table_bytes = 32'000'000;

template <class SomeMachine, class Visit>
void for_each_rate(SomeMachine& machine, const Visit& visit) {
  visit("f32_flops", machine.f32_flops);
  visit("bf16_flops", machine.bf16_flops);
  visit("bytes_per_second", machine.bytes_per_second);
  visit("to_host_bytes_per_second", machine.to_host_bytes_per_second);
  visit("from_host_bytes_per_second", machine.from_host_bytes_per_second);
  visit("host_memory_bytes_per_second", machine.host_memory_bytes_per_second);
  visit("launch_seconds", machine.launch_seconds);
}

// Upper limits of valid entries: seconds, counts of work, and rates.
constexpr double max_seconds = 1e5, max_count = 1e24, max_rate = 1e20;

double positive(const JsonField& field, double max) {
  const double number = field.number();
  field.expect(number > 0 && number <= max, number, " is no measurement");
  return number;
}

double count(const JsonField& field) {
  const double number = field.number();
  field.expect(number >= 0 && number <= max_count, number, " is no number of flops or bytes");
  return number;
}

Machine read_rates(const JsonField& field) {
  Machine machine;
  for_each_rate(machine, [&](const char* key, double& rate) {
    rate = positive(field.member(key), max_rate);
  });
  return machine;
}

KernelTime read_kernel(const JsonField& field) {
  KernelTime kernel{.name = field.member("name").string(),
                    .cost = {.flops = count(field.member("flops")),
                             .bytes = count(field.member("bytes")),
                             .dtype = field.member("dtype").enumerator<DType>()},
                    .seconds = positive(field.member("seconds"), max_seconds)};
  field.expect(!kernel.name.empty(), "a kernel has a name");
  return kernel;
}

LinkKey read_link_key(const JsonField& field) {
  constexpr std::array backends{"threads", "sockets", "mpi", "nccl"};
  constexpr int max_ranks = 1 << 20;
  LinkKey key{.backend = field.member("backend").string(),
              .ranks = field.member("ranks").integer<int>(2, max_ranks)};
  key.machines = field.member("machines").integer<int>(1, key.ranks);
  field.expect(std::ranges::find(backends, key.backend) != backends.end(), excerpt(key.backend),
               " is no way to exchange");
  return key;
}

Link read_link(const JsonField& field) {
  return {.seconds = positive(field.member("seconds"), max_seconds),
          .bytes_per_second = positive(field.member("bytes_per_second"), max_rate)};
}

Links read_links(const JsonField& field) {
  Links links;
  for (const JsonField& link : field.items()) {
    const bool is_new = links.emplace(read_link_key(link), read_link(link)).second;
    link.expect(is_new, "a link is there twice");
  }
  return links;
}

json links_json(const Links& links) {
  json all = json::array();
  for (const auto& [key, link] : links) {
    all.push_back({{"backend", key.backend},
                   {"ranks", key.ranks},
                   {"machines", key.machines},
                   {"seconds", link.seconds},
                   {"bytes_per_second", link.bytes_per_second}});
  }
  return all;
}

DeviceIdentity read_identity(const JsonField& field) {
  DeviceIdentity device;
  for (const JsonField& member : field.members()) device[member.key()] = member.string();
  return device;
}

void check_device(const DeviceIdentity& stored, const DeviceIdentity& ours,
                  const std::string& file) {
  for (const auto& [key, value] : ours) {
    const auto at = stored.find(key);
    const std::string theirs = at == stored.end() ? "unknown" : at->second;
    check_file(theirs == value, file, "is the table of another device: its ", key, " is ",
               excerpt(theirs), ", and here it is ", excerpt(value));
  }
  check_file(stored.size() == ours.size(), file, "is the table of another device");
}

std::string format_kernel(const KernelTime& k) {
  return sentence("{\"name\":", json(k.name), ",\"dtype\":\"", name(k.cost.dtype),
                  "\",\"flops\":", json(k.cost.flops), ",\"bytes\":", json(k.cost.bytes),
                  ",\"seconds\":", json(k.seconds), "}");
}

}  // namespace

std::string to_text(const DeviceTable& table) {
  std::string text =
      sentence("{\n  \"spool_kernels\": ", table_version, ",\n  \"device\": ", json(table.device));
  if (table.rates) {
    json rates = json::object();
    for_each_rate(*table.rates, [&](const char* key, double rate) { rates[key] = rate; });
    text += sentence(",\n  \"rates\": ", rates);
  }
  if (table.measured) text += sentence(",\n  \"machine\": ", to_json(*table.measured));
  if (table.event_seconds > 0) {
    text += sentence(",\n  \"event_seconds\": ", json(table.event_seconds));
  }
  text += sentence(",\n  \"disks\": ", json(table.disks));
  if (!table.links.empty()) text += sentence(",\n  \"links\": ", links_json(table.links));
  text += ",\n  \"kernels\": [";
  const char* comma = "\n    ";
  for (const KernelTime& k : table.kernels) {
    text += comma + format_kernel(k);
    comma = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

namespace {

// Of the device, or of any if it is null.
DeviceTable table_from_json(const JsonField& whole, const DeviceIdentity* device) {
  const JsonField version = whole.member("spool_kernels");
  version.expect(version.integer<int>() == table_version, "a table of version ",
                 excerpt(version.value()), " cannot be read, only of version ", table_version);
  DeviceTable table{.device = read_identity(whole.member("device"))};
  if (device) check_device(table.device, *device, whole.file());
  if (const auto rates = whole.find("rates")) table.rates = read_rates(*rates);
  if (const auto machine = whole.find("machine")) table.measured = measured_device(*machine);
  if (const auto event = whole.find("event_seconds")) {
    table.event_seconds = positive(*event, max_seconds);
  }
  for (const JsonField& disk : whole.member("disks").members()) {
    table.disks[disk.key()] = positive(disk, max_rate);
  }
  if (const auto links = whole.find("links")) table.links = read_links(*links);
  const JsonField kernels = whole.member("kernels");
  for (const JsonField& kernel : kernels.items()) table.kernels.push_back(read_kernel(kernel));
  std::ranges::sort(table.kernels, before);
  const auto twice = std::ranges::adjacent_find(table.kernels, same_kernel);
  kernels.expect(twice == table.kernels.end(), "a kernel is there twice");
  return table;
}

DeviceTable read_table(const std::filesystem::path& path, const DeviceIdentity* device) {
  return table_from_json(parse_json(read_text_file(path, max_table_bytes), path.string()), device);
}

}  // namespace

void add_kernels(DeviceTable& table, const std::vector<KernelTime>& kernels, Renewal renewal) {
  for (const KernelTime& k : kernels) {
    const auto at = std::ranges::lower_bound(table.kernels, k, before);
    if (at == table.kernels.end() || !same_kernel(*at, k)) {
      table.kernels.insert(at, k);
    } else if (renewal == Renewal::replace) {
      at->seconds = k.seconds;
    } else if (renewal == Renewal::lower) {
      at->seconds = std::min(at->seconds, k.seconds);
    }
  }
}

void add_link(DeviceTable& table, const LinkKey& key, const Link& link, Renewal renewal) {
  const auto [at, is_new] = table.links.emplace(key, link);
  if (is_new || renewal == Renewal::keep) return;
  Link& kept = at->second;
  const bool lowers = renewal == Renewal::lower;
  kept.seconds = lowers ? std::min(kept.seconds, link.seconds) : link.seconds;
  kept.bytes_per_second =
      lowers ? std::max(kept.bytes_per_second, link.bytes_per_second) : link.bytes_per_second;
}

void take_slowest(DeviceTable& table, const DeviceTable& other) {
  const auto differ = [](bool same) { check(same, "ranks measured different things"); };
  differ(table.rates.has_value() == other.rates.has_value() &&
         table.kernels.size() == other.kernels.size());
  if (table.rates) {
    std::map<std::string_view, double> theirs;
    for_each_rate(*other.rates, [&](const char* key, double rate) { theirs[key] = rate; });
    for_each_rate(*table.rates, [&](std::string_view key, double& rate) {
      const bool is_time = key == "launch_seconds";
      rate = is_time ? std::max(rate, theirs[key]) : std::min(rate, theirs[key]);
    });
  }
  for (size_t i = 0; i < table.kernels.size(); ++i) {
    KernelTime& kernel = table.kernels[i];
    differ(same_kernel(kernel, other.kernels[i]));
    kernel.seconds = std::max(kernel.seconds, other.kernels[i].seconds);
  }
  for (auto& [directory, rate] : table.disks) rate = std::min(rate, other.disks.at(directory));
  table.event_seconds = std::max(table.event_seconds, other.event_seconds);
}

DeviceTable table_from_text(const std::string& text, const std::string& name) {
  return table_from_json(parse_json(text, name), nullptr);
}

DeviceTable load_table(const std::filesystem::path& path, const DeviceIdentity& device) {
  std::error_code unreachable;  // is for the user to hear when the table is saved
  if (!std::filesystem::exists(path, unreachable)) return {.device = device};
  return read_table(path, &device);
}

DeviceTable load_table_of_any_device(const std::filesystem::path& path) {
  DeviceTable table = read_table(path, nullptr);
  constexpr const char* is_missing = "; measure the device, and save its table, once more";
  check_file(table.rates.has_value(), path, "there is no field rates", is_missing);
  check_file(table.measured.has_value(), path, "there is no field machine", is_missing);
  return table;
}

bool is_table(const std::filesystem::path& path) {
  try {
    (void)read_table(path, nullptr);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void save_table(const std::filesystem::path& path, const DeviceTable& table) {
  std::error_code none;
  std::filesystem::create_directories(path.parent_path(), none);
  write_text_file_atomically(path, to_text(table));
}

void store_link(const std::filesystem::path& path, const DeviceIdentity& device, const LinkKey& key,
                const Link& link, Renewal renewal) {
  DeviceTable table = load_table(path, device);
  add_link(table, key, link, renewal);
  save_table(path, table);
}

}  // namespace spool
