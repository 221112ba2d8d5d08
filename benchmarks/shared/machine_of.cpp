#include "shared/machine_of.h"

namespace spool::benchmarks {

Machine machine_of(const std::string& name) {
  if (name == "cpu") {
    return {.name = name,
            .architecture = CpuArchitecture{.threads = 2},
            .f32_flops = 450e9,
            .bf16_flops = 900e9,
            .bytes_per_second = 20e9};
  }
  return machine_from_text(name).machine;
}

}  // namespace spool::benchmarks
