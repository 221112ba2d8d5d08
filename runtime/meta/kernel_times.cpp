#include "spool/runtime/meta/kernel_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "spool/runtime/check.h"

namespace spool {
namespace {

auto key(const KernelTime& k) {
  return std::tuple(std::string_view(k.name), k.cost.dtype, k.cost.flops, k.cost.bytes);
}

void check_kernel(const KernelTime& k) {
  const bool valid = !k.name.empty() && std::isfinite(k.cost.flops) && k.cost.flops >= 0 &&
                     std::isfinite(k.cost.bytes) && k.cost.bytes >= 0 && std::isfinite(k.seconds) &&
                     k.seconds > 0;
  check(valid, "measured kernels: ", k.cost.flops, " flops and ", k.cost.bytes, " bytes of '",
        k.name, "' in ", k.seconds, " s are no measurement");
}

// Of at most `max` kernels, spread evenly over all, so that a large table takes no longer.
double median_scale(const std::vector<KernelTime>& kernels, const Machine& rates) {
  constexpr size_t max = 32;
  std::array<double, max> scales = {};
  const size_t count = std::min(kernels.size(), max);
  if (count == 0) return 1;
  for (size_t i = 0; i < count; ++i) {
    const KernelTime& k = kernels[i * kernels.size() / count];
    scales[i] = k.seconds / rates.seconds(k.cost);
  }
  const auto middle = scales.begin() + count / 2;
  std::nth_element(scales.begin(), middle, scales.begin() + count);
  return *middle;
}

}  // namespace

bool same_kernel(const KernelTime& a, const KernelTime& b) { return key(a) == key(b); }

bool before(const KernelTime& a, const KernelTime& b) { return key(a) < key(b); }

KernelTimes::KernelTimes(std::vector<KernelTime> kernels) : kernels_(std::move(kernels)) {
  std::ranges::for_each(kernels_, check_kernel);
  std::ranges::sort(kernels_, before);
  const auto twice = std::ranges::adjacent_find(kernels_, same_kernel);
  check(twice == kernels_.end(),
        "measured kernels: ", twice == kernels_.end() ? std::string() : twice->name,
        " is there twice, with one cost");
  slots_.resize(std::bit_ceil(2 * kernels_.size() + 2));
  mask_ = slots_.size() - 1;
  for (const KernelTime& k : kernels_) {
    size_t i = hash(k.cost) & mask_;
    while (slots_[i].name) i = (i + 1) & mask_;
    slots_[i] = {.name = k.name.c_str(), .cost = k.cost, .seconds = k.seconds};
  }
}

double KernelTimes::scale(const Machine& rates, std::string_view name, const Cost& cost) const {
  const auto is_before = [](const KernelTime& k, const auto& wanted) { return key(k) < wanted; };
  const auto next =
      std::lower_bound(kernels_.begin(), kernels_.end(),
                       std::tuple(name, cost.dtype, cost.flops, cost.bytes), is_before);
  const auto fits = [&](auto at) { return at->name == name && at->cost.dtype == cost.dtype; };
  const bool has_next = next != kernels_.end() && fits(next);
  const bool has_previous = next != kernels_.begin() && fits(next - 1);
  if (!has_next && !has_previous) return median_scale(kernels_, rates);
  bool take_next = has_next;
  if (has_next && has_previous) {  // by the ratio of the flops
    take_next = cost.flops * cost.flops > next->cost.flops * (next - 1)->cost.flops;
  }
  const KernelTime& nearest = take_next ? *next : *(next - 1);
  return nearest.seconds / rates.seconds(nearest.cost);
}

}  // namespace spool
