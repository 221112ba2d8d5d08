#include "spool/planner/machines/machine_text.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <vector>

#include "spool/planner/machines/device_table.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/check.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

using Words = std::vector<std::string_view>;

constexpr std::string_view cpu_prefix = "cpu:", link_prefix = "link=", ranks_prefix = "ranks=";

Words words_of(std::string_view text) {
  Words words;
  while (true) {
    const size_t comma = text.find(',');
    words.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

bool ends_in_digit(std::string_view word) {
  return !word.empty() && '0' <= word.back() && word.back() <= '9';
}

// Throws unless `ok`, about one word of the text.
template <class... Parts>
void check_word(bool ok, std::string_view word, const Parts&... parts) {
  check_setting(ok, {"machine"}, "'", word, "' ", parts...);
}

// Bytes with a unit; none if the word says no such amount.
std::optional<size_t> bytes_of(std::string_view word) {
  if (word.empty() || ends_in_digit(word)) return {};
  try {
    return parse_bytes(word);
  } catch (const Error&) {
    return {};
  }
}

size_t memory_of(std::string_view word) {
  const std::optional<size_t> bytes = bytes_of(word);
  check_word(bytes.has_value(), word, "is no amount of memory; give one such as 64GiB");
  return *bytes;
}

double rate_of(std::string_view word) {
  constexpr std::string_view a_second = "/s";
  const bool is_rate = word.ends_with(a_second);
  const auto bytes = bytes_of(word.substr(0, word.size() - (is_rate ? a_second.size() : 0)));
  check_word(is_rate && bytes, word, "is no rate of bytes; give a rate such as 80GB/s");
  return static_cast<double>(*bytes);
}

// The number at the beginning of a word whose rest is the unit; none if there is no such number.
template <class Number>
std::optional<Number> number_before(std::string_view unit, std::string_view word) {
  if (!word.ends_with(unit)) return {};
  word.remove_suffix(unit.size());
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return number;
}

int threads_of(std::string_view word) {
  constexpr int max = 4096;
  const std::optional<int> threads = number_before<int>("", word);
  check_word(threads && 1 <= *threads && *threads <= max, word,
             "is no number of threads; give 1 to ", max);
  return *threads;
}

// Cycles per second.
double clock_of(std::string_view word) {
  constexpr double min = 1e6, max = 1e12;
  const std::optional<double> ghz = number_before<double>("GHz", word),
                              mhz = number_before<double>("MHz", word);
  const double clock = ghz ? 1e9 * *ghz : mhz ? 1e6 * *mhz : 0;
  check_word(min <= clock && clock <= max, word, "is no clock; give one such as 3.5GHz");
  return clock;
}

struct InstructionSet {
  std::string_view name;
  double f32_flops;  // of a core, per cycle
  double bf16_over_f32;
  Bf16Products products;
  bool has_512_bits;
};

constexpr InstructionSet instruction_sets[] = {{"avx2", 32, 1, Bf16Products::as_f32, false},
                                               {"avx512", 64, 1, Bf16Products::as_f32, true},
                                               {"avx512bf16", 64, 2, Bf16Products::pairs, true},
                                               {"amx", 64, 2, Bf16Products::tiles, true}};

const InstructionSet& instruction_set_of(std::string_view word) {
  const auto* set = std::ranges::find(instruction_sets, word, &InstructionSet::name);
  check_word(set != std::end(instruction_sets), word,
             "is no instruction set; give avx2, avx512, avx512bf16 or amx");
  return *set;
}

// The words of a cpu's text, in their order.
struct CpuWords {
  int threads = 1;
  InstructionSet set = {};
  double clock = 0, bandwidth = 0;  // per second
  std::optional<size_t> memory = {};
  bool one_port = false;
};

void add_further_word(std::string_view word, CpuWords& cpu) {
  check_word(!word.starts_with(link_prefix) && !word.starts_with(ranks_prefix), word,
             "is a link of a GPU; what a cpu offloads, or its ranks exchange, stays in its own "
             "memory");
  if (word != "one-port") {
    check_word(!cpu.memory, word, "is a word too many; write ", text_of_a_cpu);
    cpu.memory = bytes_of(word);
    check_word(cpu.memory.has_value(), word,
               "is no amount of memory, such as 64GiB, and is not one-port");
    return;
  }
  check_word(!cpu.one_port, word, "is there twice");
  check_word(cpu.set.has_512_bits, word, "halves what avx512 has, and ", cpu.set.name,
             " has no 512 bits; leave it out");
  cpu.one_port = true;
}

CpuWords cpu_words(std::string_view text) {
  const Words words = words_of(text);
  constexpr size_t needed = 4;
  check_setting(words.size() >= needed, {"machine"}, "'", cpu_prefix, text, "' has ", words.size(),
                words.size() == 1 ? " word" : " words", " of ", needed, "; write ", text_of_a_cpu);
  CpuWords cpu{.threads = threads_of(words[0]),
               .set = instruction_set_of(words[1]),
               .clock = clock_of(words[2]),
               .bandwidth = rate_of(words[3])};
  for (size_t i = needed; i < words.size(); ++i) add_further_word(words[i], cpu);
  return cpu;
}

// The attained part of what the text says, as of a data sheet.
AbsentMachine cpu_machine(std::string_view text) {
  constexpr double products = 0.8, memory = 0.8, launch_seconds = 2e-6;
  const CpuWords cpu = cpu_words(text);
  const double flops =
      products * cpu.threads * cpu.clock * cpu.set.f32_flops / (cpu.one_port ? 2 : 1);
  const double bytes = memory * cpu.bandwidth;
  return {.machine = {.architecture = CpuArchitecture{.threads = cpu.threads,
                                                      .bf16_products = cpu.set.products},
                      .f32_flops = flops,
                      .bf16_flops = cpu.set.bf16_over_f32 * flops,
                      .bytes_per_second = bytes,
                      .to_host_bytes_per_second = bytes / 2,  // read and written
                      .from_host_bytes_per_second = bytes / 2,
                      .host_memory_bytes_per_second = bytes,
                      .launch_seconds = launch_seconds,
                      .mesh = {.link = link_by_memory(bytes)}},
          .memory = cpu.memory};
}

AbsentMachine sheet_machine(const Words& words) {
  AbsentMachine sheet{.machine = *named_machine(words[0])};
  Machine& machine = sheet.machine;
  std::optional<double> to_host, to_ranks;
  for (size_t i = 1; i < words.size(); ++i) {
    const bool is_link = words[i].starts_with(link_prefix),
               is_of_ranks = words[i].starts_with(ranks_prefix);
    check_word(is_link       ? !to_host
               : is_of_ranks ? !to_ranks
                             : !sheet.memory,
               words[i],
               "is a word too many; after the name come its memory, such as 48GiB, link=6GB/s and ",
               "ranks=450GB/s, once each");
    if (is_link) {
      to_host = rate_of(words[i].substr(link_prefix.size()));
    } else if (is_of_ranks) {
      to_ranks = rate_of(words[i].substr(ranks_prefix.size()));
    } else {
      sheet.memory = memory_of(words[i]);
    }
  }
  if (to_host) machine.to_host_bytes_per_second = machine.from_host_bytes_per_second = *to_host;
  if (to_ranks) {
    machine.mesh.link.bytes_per_second = *to_ranks;
    double& between = machine.mesh.between_machines.bytes_per_second;
    between = std::min(Mesh{}.between_machines.bytes_per_second, *to_ranks);
  }
  if (!sheet.memory) sheet.memory = memory_of_named_machine(words[0]);
  return sheet;
}

AbsentMachine measured_machine(const std::string& file) {
  DeviceTable table = load_table_of_any_device(file);
  AbsentMachine absent{.machine = *std::move(table.rates),
                       .memory = table.measured->memory,
                       .host_memory = table.measured->host_memory,
                       .disks = std::move(table.disks),
                       .links = std::move(table.links)};
  absent.machine.name = table.measured->name;
  absent.machine.architecture = table.measured->architecture;
  absent.machine.kernels = std::make_shared<KernelTimes>(std::move(table.kernels));
  absent.machine.mesh = nominal_machine(absent.machine).mesh;
  absent.machine.mesh.ranks = table.measured->ranks;
  return absent;
}

AbsentMachine described_machine(const std::string& text) {
  if (text.starts_with(cpu_prefix)) {
    return cpu_machine(std::string_view(text).substr(cpu_prefix.size()));
  }
  const Words words = words_of(text);
  if (named_machine(words[0])) return sheet_machine(words);
  const std::string fault = fault_of_numbers(words[0]);
  check_word(fault.empty(), words[0], fault);
  fail_setting(ErrorKind::invalid, {"machine"}, "there is no machine '", text, "'; there are ",
               fmt::format("{}", fmt::join(machine_names(), ", ")),
               ", ranks on several of one (8xh200, or 2x8xh200 on two machines), ", text_of_a_cpu,
               ", and files of measured devices");
}

// Of a device: without the numbers before its name.
std::string name_without_numbers(const std::string& text) {
  const std::string_view name = words_of(text).front();
  const std::optional<Machine> sheet = named_machine(name);
  return sheet ? text.substr(name.size() - sheet->name.size()) : text;
}

// The ranks of a cpu are threads, which share it.
void divide(AbsentMachine& absent, int ranks) {
  Machine& machine = absent.machine;
  int& threads = std::get<CpuArchitecture>(machine.architecture).threads;
  threads = std::max(threads / ranks, 1);
  for (double* rate : {&machine.f32_flops, &machine.bf16_flops, &machine.bytes_per_second,
                       &machine.host_memory_bytes_per_second, &machine.to_host_bytes_per_second,
                       &machine.from_host_bytes_per_second}) {
    *rate /= ranks;
  }
  if (absent.memory) *absent.memory /= static_cast<size_t>(ranks);
}

}  // namespace

AbsentMachine machine_from_text(const std::string& text) {
  if (is_machine_file(text)) return measured_machine(text);
  AbsentMachine absent = described_machine(text);
  absent.machine.name = name_without_numbers(text);
  return absent;
}

std::string give_ranks(AbsentMachine& absent, int ranks, const std::string& of_cpu) {
  const bool is_part = absent.machine.mesh.ranks > 0;  // of a machine whose ranks were measured
  if (ranks > 0) set_ranks(absent.machine, ranks);
  const bool is_cpu = std::holds_alternative<CpuArchitecture>(absent.machine.architecture);
  if (is_cpu && ranks > 1 && !is_part) divide(absent, ranks);
  return use_measured_link(absent.machine, absent.links, is_cpu ? of_cpu : "nccl");
}

bool is_machine_file(const std::string& text) {
  const std::string_view head = words_of(text).front();
  if (text.starts_with(cpu_prefix) || named_machine(head)) return false;
  std::error_code unreachable;
  return head.find('/') != std::string_view::npos || text.ends_with(".json") ||
         std::filesystem::exists(text, unreachable);
}

size_t host_bytes_of(const AbsentMachine& absent) {
  const bool is_cpu = std::holds_alternative<CpuArchitecture>(absent.machine.architecture);
  if (!absent.memory) return MetaStream::unlimited;
  if (is_cpu) return *absent.memory / 2;
  return absent.host_memory ? *absent.host_memory / 2 : 2 * *absent.memory;
}

}  // namespace spool
