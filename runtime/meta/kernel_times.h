#pragma once

// What kernels of a machine take, measured: a table from what a launch tells of a kernel, its name
// and its cost, to seconds.  It does not change once it is made, so machines share it.

#include <bit>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spool/runtime/device.h"
#include "spool/runtime/hash.h"

namespace spool {

struct KernelTime {
  std::string name;
  Cost cost = {};
  double seconds = 0;
};

// Whether both are of one kernel.
bool same_kernel(const KernelTime&, const KernelTime&);
// An order of kernels: by name, type of the flops, flops and bytes.
bool before(const KernelTime&, const KernelTime&);

class KernelTimes {
 public:
  // Throws if a kernel is there twice, or a number is not finite, or no time.
  explicit KernelTimes(std::vector<KernelTime> kernels);
  KernelTimes(const KernelTimes&) = delete;
  KernelTimes& operator=(const KernelTimes&) = delete;

  // Seconds of a kernel; null if the table lacks it.
  const double* find(const char* name, const Cost& cost) const {
    for (size_t i = hash(cost) & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (!slot.name) return nullptr;
      if (slot.cost.flops == cost.flops && slot.cost.bytes == cost.bytes &&
          slot.cost.dtype == cost.dtype && std::string_view(slot.name) == name) {
        return &slot.seconds;
      }
    }
  }

  // How much longer than by the rates a kernel takes that the table lacks: as the kernel of its
  // name and type does whose flops are the nearest; 1 if there is none.  So what was measured and
  // what was not can be compared.
  double scale(const Machine& rates, std::string_view name, const Cost&) const;

  // In the order of before().
  const std::vector<KernelTime>& all() const { return kernels_; }

 private:
  struct Slot {
    const char* name = nullptr;  // null: free
    Cost cost = {};
    double seconds = 0;
  };
  static size_t hash(const Cost& cost) {
    const auto flops = std::bit_cast<uint64_t>(cost.flops);
    const auto bytes = std::bit_cast<uint64_t>(cost.bytes);
    return mix_bits(flops + golden_ratio_bits * (bytes + static_cast<uint64_t>(cost.dtype)));
  }

  std::vector<KernelTime> kernels_;
  std::vector<Slot> slots_;  // a power of two of them, at most half of them taken
  size_t mask_ = 0;
};

// What the machine takes for a kernel: as measured, or else by its rates, scaled.
inline double kernel_seconds(const Machine& machine, const char* name, const Cost& cost) {
  if (!machine.kernels) return machine.seconds(cost);
  const double* measured = machine.kernels->find(name, cost);
  return measured ? *measured : machine.seconds(cost) * machine.kernels->scale(machine, name, cost);
}

}  // namespace spool
