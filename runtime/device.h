#pragma once

// Which kind of device work runs on, what of it decides the shape of the work (Architecture), and
// what of it decides how long the work takes (Machine).

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "spool/runtime/dtype.h"

namespace spool {

enum class DeviceType : uint8_t { cpu, cuda, meta };

constexpr const char* name(DeviceType t) {
  constexpr const char* names[] = {"cpu", "cuda", "meta"};
  return names[static_cast<size_t>(t)];
}

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda", "cuda:1", "meta".  Anything else is an error that lists these.
Device parse_device(std::string_view text);

// What a kernel's workspace may depend on besides its arguments, by kind of device.
struct CpuArchitecture {
  int threads = 1;
};
struct CudaArchitecture {
  int major = 9, minor = 0;     // compute capability
  bool fused_attention = true;  // whether cuDNN is there
};
using Architecture = std::variant<CpuArchitecture, CudaArchitecture>;

// The work a kernel does, counted once, by the kernel.
struct Cost {
  double flops = 0;
  double bytes = 0;
  DType dtype = DType::f32;  // the flops are done in
};

// What a clock needs to know of a device.
struct Machine {
  std::string name = "unnamed";
  Architecture architecture = {};
  double f32_flops = 200e9;                    // per second, of a large matrix product
  double bf16_flops = 400e9;                   // likewise
  double bytes_per_second = 20e9;              // of a large copy, counted read plus written
  double host_bytes_per_second = 20e9;         // of a copy to the host or from it
  double host_memory_bytes_per_second = 20e9;  // of the host's own work on its memory
  double disk_bytes_per_second = 1e9;          // of the disk that values are offloaded to
  double launch_seconds = 2e-6;

  double seconds(const Cost& cost) const {
    const double rate = cost.dtype == DType::bf16 ? bf16_flops : f32_flops;
    const double compute = cost.flops / rate, memory = cost.bytes / bytes_per_second;
    return launch_seconds + (compute > memory ? compute : memory);
  }
};

}  // namespace spool
