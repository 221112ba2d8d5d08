#pragma once

// Measured durations of a machine's kernels: a table from a kernel's name and cost, as its launch
// has them, to seconds.  It is immutable, so machines share it.

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

// Whether both have the same name and cost.
bool same_kernel(const KernelTime&, const KernelTime&);
// An order of kernels: by name, type of the flops, flops and bytes.
bool before(const KernelTime&, const KernelTime&);

class KernelTimes {
 public:
  // Throws if a kernel is listed twice, or a number is not finite, or a duration not positive.
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

  // For a kernel that the table lacks: its duration relative to the machine's rates, as that of the
  // kernel of the same name and type with the nearest flops, or else as the median of others; 1 if
  // there are none.  It makes estimates comparable with measurements.
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

// Seconds of a kernel on the machine: as measured, or else by its rates times scale().
inline double kernel_seconds(const Machine& machine, const char* name, const Cost& cost) {
  if (!machine.kernels) return machine.seconds(cost);
  const double* measured = machine.kernels->find(name, cost);
  return measured ? *measured : machine.seconds(cost) * machine.kernels->scale(machine, name, cost);
}

}  // namespace spool
