// Machines that are known by name, and the clock that no measurement enters.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <variant>

#include "spool/planner/machines/machine.h"

namespace spool {
namespace {

// A vendor's data sheet for an accelerator.
struct DataSheet {
  const char* name;
  CudaArchitecture architecture;
  double bf16_flops, f32_flops;  // per second, dense; f32 outside the tensor cores
  double bytes_per_second;       // of its memory
  double host_bytes_per_second;  // each way
  double memory_bytes;
};

// NVIDIA: "H200 Tensor Core GPU", "H100 Tensor Core GPU" (both SXM; PCIe 5 x16), "A100 Tensor Core
// GPU" (SXM, and one as a card; PCIe 4 x16), "Ada GPU Architecture" (GeForce RTX 4090; PCIe 4 x16;
// bf16 with f32 sums).
constexpr DataSheet data_sheets[] = {
    {"h100", {.major = 9, .minor = 0}, 989.4e12, 67e12, 3.35e12, 64e9, 80e9},
    {"h200", {.major = 9, .minor = 0}, 989e12, 67e12, 4.8e12, 64e9, 141e9},
    {"a100-80g", {.major = 8, .minor = 0}, 312e12, 19.5e12, 2.039e12, 32e9, 80e9},
    {"a100-80g-pcie", {.major = 8, .minor = 0}, 312e12, 19.5e12, 1.935e12, 32e9, 80e9},
    {"a100-40g", {.major = 8, .minor = 0}, 312e12, 19.5e12, 1.555e12, 32e9, 40e9},
    {"rtx4090", {.major = 8, .minor = 9}, 165.2e12, 82.6e12, 1.008e12, 32e9, 24e9}};

// Null if there is none.
const DataSheet* sheet_of(std::string_view name) {
  const auto* sheet = std::ranges::find(data_sheets, name, &DataSheet::name);
  return sheet == std::end(data_sheets) ? nullptr : sheet;
}

// The attained part of a data sheet's rates: clocks fall under load, and copies have overhead.
Machine derated(const DataSheet& sheet) {
  constexpr double bf16 = 0.7, f32 = 0.9, memory = 0.9, link = 0.78;
  return {.name = sheet.name,
          .architecture = sheet.architecture,
          .f32_flops = f32 * sheet.f32_flops,
          .bf16_flops = bf16 * sheet.bf16_flops,
          .bytes_per_second = memory * sheet.bytes_per_second,
          .to_host_bytes_per_second = link * sheet.host_bytes_per_second,
          .from_host_bytes_per_second = link * sheet.host_bytes_per_second,
          .host_memory_bytes_per_second = 150e9,  // half of eight channels of DDR5-4800
          .launch_seconds = 4e-6};
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
          .launch_seconds = 5e-6};
}

}  // namespace

std::optional<Machine> named_machine(std::string_view name) {
  const DataSheet* sheet = sheet_of(name);
  return sheet ? std::optional(derated(*sheet)) : std::nullopt;
}

std::optional<size_t> memory_of_named_machine(std::string_view name) {
  const DataSheet* sheet = sheet_of(name);
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
  if (!cpu && !machine.kernels) {  // nothing of it was measured: its link is a part of the machine
    nominal.to_host_bytes_per_second = machine.to_host_bytes_per_second;
    nominal.from_host_bytes_per_second = machine.from_host_bytes_per_second;
  }
  return nominal;
}

}  // namespace spool
