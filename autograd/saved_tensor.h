#pragma once

// A tensor that backward reads is packed after forward and unpacked in backward.  The tape's
// innermost hooks at the time of saving decide how (Tape::HooksScope); without hooks, the plan.
// PyTorch calls such a pair of hooks torch.autograd.graph.saved_tensors_hooks.
//
// pack() is called once per saved value, in the order of saving.  unpack() is called at most once
// while its result lives, which is until the last use in backward.  Neither is called for a value
// that is recomputed, for parameters, or for the caller's inputs.  If a hook throws, the tape stays
// consistent: in pack() the op is removed, in unpack() everything the tape saved is freed.  A hook
// applies no ops to the tape; it may launch kernels, or use a tape of its own.

#include <cstdint>
#include <memory>

#include "spool/runtime/tensor.h"

namespace spool {

// The value that is packed.
struct SavedInfo {
  const char* op = "";  // the op that computed it
  int32_t value = -1;   // its id on the tape
};

class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  // Called when backward will need it soon.
  virtual void prefetch() {}
  // Returns a tensor of the shape, type and device of the packed one.
  virtual Tensor unpack() = 0;
};

class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  virtual std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&) = 0;
};

// Packs a tensor as it is.
std::unique_ptr<SavedTensor> keep(Tensor);

}  // namespace spool
