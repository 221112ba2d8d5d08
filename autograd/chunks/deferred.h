#pragma once

// What a tape holds while it records a region that runs in chunks: what the region reads, and the
// tensors that it has yet to compute.

#include <memory>
#include <unordered_map>
#include <vector>

#include "spool/autograd/engine/few.h"
#include "spool/autograd/plan.h"
#include "spool/runtime/tensor.h"

namespace spool {

using Tensors = std::unordered_map<ValueId, Tensor>;

// Of a value that a region in chunks computes; it remains absent unless it is a leaf of the region.
struct DeferredTensor {
  Spec spec = {};
  Tensor tensor = {};
};

class Deferred {
 public:
  // The inputs of an op that exist.
  void hold(const Few<ValueId>& ids, const Few<Tensor>& in);
  std::shared_ptr<const DeferredTensor> promise(ValueId, const Spec&);

  const Tensors& held() const { return held_; }
  void keep_promise(ValueId, const Tensor&);
  // The region has ended.
  void clear();

  // An op that fails can be undone.
  size_t mark() const { return order_.size(); }
  void restore(size_t mark, ValueId next_value);

 private:
  Tensors held_;
  std::vector<ValueId> order_;  // of what is held
  std::unordered_map<ValueId, std::shared_ptr<DeferredTensor>> promises_;
};

}  // namespace spool
