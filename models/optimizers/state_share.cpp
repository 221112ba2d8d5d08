#include "spool/models/optimizers/state_share.h"

#include <algorithm>
#include <numeric>

#include "spool/kernels/adamw.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/memory/arena.h"

namespace spool {
namespace {

size_t bytes_of_row(int64_t elements) {
  return round_up(static_cast<size_t>(elements) * sizeof(float), Arena::granule);
}

}  // namespace

std::vector<int64_t> elements_on_device(const std::vector<int64_t>& numels, size_t rows,
                                        size_t bytes) {
  std::vector<size_t> order(numels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return numels[a] > numels[b]; });
  std::vector<int64_t> elements(numels.size());
  size_t left = bytes / rows;  // of each row
  int64_t* divided = nullptr;
  for (const size_t i : order) {
    const size_t needed = bytes_of_row(numels[i]);
    if (needed <= left) {
      elements[i] = numels[i];
      left -= needed;
    } else {
      divided = &elements[i];
    }
  }
  constexpr size_t granule_bytes = AdamW::granule * sizeof(float);
  if (divided) *divided = static_cast<int64_t>(left / granule_bytes) * AdamW::granule;
  return elements;
}

std::vector<int64_t> numels_of(const std::vector<Parameter*>& parameters) {
  std::vector<int64_t> numels;
  for (const Parameter* p : parameters) numels.push_back(p->data.numel());
  return numels;
}

OptimizerState place_of_rows(const std::vector<Parameter*>& parameters, size_t rows,
                             const OptimizerMemory& memory) {
  if (rows == 0) return OptimizerState::device;
  if (memory.state != OptimizerState::streamed || parameters.empty()) return memory.state;
  const std::vector<int64_t> numels = numels_of(parameters);
  const bool all = elements_on_device(numels, rows, memory.bytes_on_device) == numels;
  return all ? OptimizerState::device : OptimizerState::streamed;
}

}  // namespace spool
