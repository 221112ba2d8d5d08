// Machines that are known by name, and the clock that no measurement enters.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <variant>

#include "spool/planner/machines/links.h"
#include "spool/planner/machines/machine.h"
#include "spool/runtime/check.h"

namespace spool {
namespace {

// The part of a link's rate that copies attain.
constexpr double nvlink = 0.78, pcie = 0.78;

// A vendor's data sheet for an accelerator.
struct DataSheet {
  const char* name;
  CudaArchitecture architecture;
  double bf16_flops, f32_flops;  // per second, dense; f32 outside the tensor cores
  double bytes_per_second;       // of its memory
  double host_bytes_per_second;  // each way
  double memory_bytes;
  double peer_bytes_per_second;  // to another of a machine, each way, as attained
};

// NVIDIA: "H200 Tensor Core GPU", "H100 Tensor Core GPU" (both SXM; PCIe 5 x16), "A100 Tensor Core
// GPU" (SXM, and one as a card; PCIe 4 x16), "Ada GPU Architecture" (GeForce RTX 4090; PCIe 4 x16;
// bf16 with f32 sums).  SXM devices of a machine have NVLink, cards PCIe;
// without peer access, copies through the host's memory are an estimate.
constexpr DataSheet data_sheets[] = {
    {"h100", {.major = 9, .minor = 0}, 989.4e12, 67e12, 3.35e12, 64e9, 80e9, nvlink * 450e9},
    {"h200", {.major = 9, .minor = 0}, 989e12, 67e12, 4.8e12, 64e9, 141e9, nvlink * 450e9},
    {"a100-80g", {.major = 8, .minor = 0}, 312e12, 19.5e12, 2.039e12, 32e9, 80e9, nvlink * 300e9},
    {"a100-80g-pcie", {.major = 8, .minor = 0}, 312e12, 19.5e12, 1.935e12, 32e9, 80e9, pcie * 32e9},
    {"a100-40g", {.major = 8, .minor = 0}, 312e12, 19.5e12, 1.555e12, 32e9, 40e9, nvlink * 300e9},
    {"rtx4090", {.major = 8, .minor = 9}, 165.2e12, 82.6e12, 1.008e12, 32e9, 24e9, 25e9}};

// Null if there is none.
const DataSheet* sheet_of(std::string_view name) {
  const auto* sheet = std::ranges::find(data_sheets, name, &DataSheet::name);
  return sheet == std::end(data_sheets) ? nullptr : sheet;
}

// The links of ranks, one on each such device.  Between machines a device has a network card of
// 400 Gbit/s to itself.
Mesh links_of(const DataSheet& sheet) {
  Mesh mesh{.link = {.seconds = 8e-6, .bytes_per_second = sheet.peer_bytes_per_second}};
  double& between = mesh.between_machines.bytes_per_second;
  between = std::min(between, mesh.link.bytes_per_second);
  return mesh;
}

// The attained part of a data sheet's rates: clocks fall under load, and copies have overhead.
Machine derated(const DataSheet& sheet) {
  constexpr double bf16 = 0.7, f32 = 0.9, memory = 0.9;
  return {.name = sheet.name,
          .architecture = sheet.architecture,
          .f32_flops = f32 * sheet.f32_flops,
          .bf16_flops = bf16 * sheet.bf16_flops,
          .bytes_per_second = memory * sheet.bytes_per_second,
          .to_host_bytes_per_second = pcie * sheet.host_bytes_per_second,
          .from_host_bytes_per_second = pcie * sheet.host_bytes_per_second,
          .host_memory_bytes_per_second = 150e9,  // half of eight channels of DDR5-4800
          .launch_seconds = 4e-6,
          .mesh = links_of(sheet)};
}

// The sheet of the nearest compute capability; of several such the first.
const DataSheet& sheet_near(const CudaArchitecture& gpu) {
  const auto distance = [&](const DataSheet& sheet) {
    return std::abs(10 * (sheet.architecture.major - gpu.major) + sheet.architecture.minor -
                    gpu.minor);
  };
  return *std::ranges::min_element(data_sheets, {}, distance);
}

Machine nominal_cpu(Bf16Products products) {
  constexpr double f32 = 200e9, bytes = 20e9;
  constexpr EnumArray<Bf16Products, double> over_f32{{1, 2, 4}};
  return {.f32_flops = f32,
          .bf16_flops = over_f32[products] * f32,
          .bytes_per_second = bytes,
          .to_host_bytes_per_second = bytes / 2,
          .from_host_bytes_per_second = bytes / 2,
          .host_memory_bytes_per_second = bytes,
          .disk_bytes_per_second = 1e9,
          .launch_seconds = 5e-6,
          .mesh = {.link = link_by_memory(bytes)}};
}

constexpr int max_ranks_of_machine = 16, max_machines = 1024;

// The name of a device after numbers: "2x8x" and "h200".
struct NumberedName {
  std::string_view numbers = {}, device = {};  // no device: it is not known
};

NumberedName numbered(std::string_view name) {
  for (const DataSheet& sheet : data_sheets) {
    const std::string_view device = sheet.name;
    if (!name.ends_with(device)) continue;
    const std::string_view numbers = name.substr(0, name.size() - device.size());
    if (numbers.empty() || numbers.ends_with('x')) return {numbers, device};
  }
  return {};
}

// Takes "8x" off the front; 0 if no positive number is there.
int take_number(std::string_view& numbers) {
  int number = 0;
  const auto [end, error] =
      std::from_chars(numbers.data(), numbers.data() + numbers.size(), number);
  const size_t digits = static_cast<size_t>(end - numbers.data());
  const bool is_number = error == std::errc() && number > 0 && numbers.front() != '0' &&
                         digits < numbers.size() && numbers[digits] == 'x';
  numbers.remove_prefix(is_number ? digits + 1 : 0);
  return is_number ? number : 0;
}

struct RankNumbers {
  int machines = 1, of_machine = 0;  // 0: no ranks
};

// Nothing if the text says no such numbers.
std::optional<RankNumbers> rank_numbers(std::string_view text) {
  RankNumbers n;
  if (text.empty()) return n;
  n.of_machine = take_number(text);
  if (!text.empty()) {
    n.machines = n.of_machine;
    n.of_machine = take_number(text);
  }
  const bool ok = text.empty() && n.machines > 0 && n.machines <= max_machines &&
                  n.of_machine > 0 && n.of_machine <= max_ranks_of_machine;
  return ok ? std::optional(n) : std::nullopt;
}

}  // namespace

std::optional<Machine> named_machine(std::string_view name) {
  const auto [numbers, device] = numbered(name);
  const std::optional<RankNumbers> ranks = rank_numbers(numbers);
  if (device.empty() || !ranks) return {};
  Machine machine = derated(*sheet_of(device));
  machine.mesh.ranks = ranks->machines * ranks->of_machine;
  if (ranks->machines > 1) machine.mesh.ranks_of_machine = ranks->of_machine;
  return machine;
}

std::string fault_of_numbers(std::string_view name) {
  const auto [numbers, device] = numbered(name);
  if (device.empty() || rank_numbers(numbers)) return {};
  return sentence("has no number of ranks before ", device, " that can be planned for: give 1 to ",
                  max_ranks_of_machine, " of a machine, as 8x", device, ", or before them 1 to ",
                  max_machines, " machines, as 2x8x", device);
}

std::optional<size_t> memory_of_named_machine(std::string_view name) {
  const DataSheet* sheet = named_machine(name) ? sheet_of(numbered(name).device) : nullptr;
  return sheet ? std::optional(static_cast<size_t>(sheet->memory_bytes)) : std::nullopt;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const DataSheet& sheet : data_sheets) names.emplace_back(sheet.name);
  return names;
}

Machine nominal_machine(const Machine& machine) {
  const auto* cpu = std::get_if<CpuArchitecture>(&machine.architecture);
  Machine nominal = cpu ? nominal_cpu(cpu->bf16_products)
                        : derated(sheet_near(std::get<CudaArchitecture>(machine.architecture)));
  nominal.name = machine.name;
  nominal.architecture = machine.architecture;
  const Mesh links = nominal.mesh;
  nominal.mesh = machine.mesh;
  if (cpu || machine.kernels) {
    nominal.mesh.link = links.link;
    nominal.mesh.between_machines = links.between_machines;
  } else {  // nothing of it was measured: its links are a part of the machine
    nominal.to_host_bytes_per_second = machine.to_host_bytes_per_second;
    nominal.from_host_bytes_per_second = machine.from_host_bytes_per_second;
  }
  return nominal;
}

}  // namespace spool
