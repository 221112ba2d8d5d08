#pragma once

// Holds, while a tape records a region that runs in chunks, what the region reads and the tensors
// that it has yet to compute.

#include <memory>
#include <unordered_map>
#include <vector>

#include "spool/autograd/engine/few.h"
#include "spool/autograd/plan.h"
#include "spool/runtime/tensor.h"

namespace spool {

using Tensors = std::unordered_map<ValueId, Tensor>;

// A value that a region in chunks will compute; `tensor` stays absent unless it is a leaf.
struct DeferredTensor {
  Spec spec = {};
  Tensor tensor = {};
};

class Deferred {
 public:
  // Holds the inputs of an op that exist already.
  void hold(const Few<ValueId>& ids, const Few<Tensor>& in);
  std::shared_ptr<const DeferredTensor> promise(ValueId, const Spec&);

  const Tensors& held() const { return held_; }
  void keep_promise(ValueId, const Tensor&);
  // For the region's end: forgets all of it.
  void clear();

  // To undo an op that fails.
  size_t mark() const { return order_.size(); }
  void restore(size_t mark, ValueId next_value);

 private:
  Tensors held_;
  std::vector<ValueId> order_;  // of what is held
  std::unordered_map<ValueId, std::shared_ptr<DeferredTensor>> promises_;
};

}  // namespace spool
