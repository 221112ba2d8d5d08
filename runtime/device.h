#pragma once

// Device: the kind and index of a device.  Architecture: its properties that kernels' workspaces
// depend on.  Machine: its rates, and the kernels measured on it, from which a rehearsal computes
// times.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "spool/runtime/dtype.h"
#include "spool/runtime/ranks/mesh.h"

namespace spool {

enum class DeviceType : uint8_t { cpu, cuda, meta };
template <>
inline constexpr std::array enumerator_names<DeviceType>{"cpu", "cuda", "meta"};

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda", "cuda:1", "meta"; throws for any other text.
Device parse_device(std::string_view text);

// How a processor multiplies bf16: as f32; in pairs of terms, as AVX512-BF16 does; or in tiles, by
// Spool's own kernels on its tile unit (AMX), which compute attention in bf16, too, and whose
// workspaces are others.
enum class Bf16Products : uint8_t { as_f32, pairs, tiles };
template <>
inline constexpr std::array enumerator_names<Bf16Products>{"f32", "pairs", "tiles"};

// The properties of a device that a kernel's workspace may depend on, besides its arguments, or
// that a clock without measurements does.
struct CpuArchitecture {
  int threads = 1;
  Bf16Products bf16_products = Bf16Products::pairs;
};
struct CudaArchitecture {
  int major = 9, minor = 0;     // compute capability
  bool fused_attention = true;  // cuDNN is available
};
using Architecture = std::variant<CpuArchitecture, CudaArchitecture>;

// The work of a kernel; each kernel counts its own.
struct Cost {
  double flops = 0;
  double bytes = 0;
  DType dtype = DType::f32;  // of the flops
};

class KernelTimes;  // runtime/meta/kernel_times.h

// The rates of a machine; seconds() is a kernel's duration by the roofline model.
struct Machine {
  std::string name = "unnamed";
  Architecture architecture = {};
  double f32_flops = 200e9;                    // per second, of a large matrix product
  double bf16_flops = 400e9;                   // per second, of a large matrix product
  double bytes_per_second = 20e9;              // of a large copy, reads plus writes
  double to_host_bytes_per_second = 20e9;      // of a copy to the host
  double from_host_bytes_per_second = 20e9;    // of a copy from the host
  double host_memory_bytes_per_second = 20e9;  // of the host's work on its own memory
  double disk_bytes_per_second = 1e9;          // of the disk that values are offloaded to
  double launch_seconds = 2e-6;
  Mesh mesh = {};
  std::shared_ptr<const KernelTimes> kernels = {};  // measured durations of kernels

  // By the rates alone, without measured durations.
  double seconds(const Cost& cost) const {
    const double rate = cost.dtype == DType::bf16 ? bf16_flops : f32_flops;
    const double compute = cost.flops / rate, memory = cost.bytes / bytes_per_second;
    return launch_seconds + (compute > memory ? compute : memory);
  }
};

}  // namespace spool
