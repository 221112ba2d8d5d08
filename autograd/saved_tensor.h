#pragma once

// Between forward and backward a tensor is put away: packed, later unpacked.  Hooks decide how: the
// innermost of the tape's at the time of saving (Tape::HooksScope), else the plan.  PyTorch calls
// such a pair torch.autograd.graph.saved_tensors_hooks.
//
// pack() is called once per saved value, in the order of saving, unpack() at most once while its
// result is alive, which is until the last use in backward; where a value is made again in
// backward, neither is.  Hooks do not see parameters and the caller's inputs.  What they throw
// leaves the tape consistent: in pack() the op is taken back, in unpack() all that the tape saved
// is let go.

#include <cstdint>
#include <memory>

#include "spool/runtime/tensor.h"

namespace spool {

// What is being put away.
struct SavedInfo {
  const char* op = "";  // that made it
  int32_t value = -1;   // on the tape
};

// A tensor put away.
class SavedTensor {
 public:
  virtual ~SavedTensor() = default;
  // Backward will want it soon.
  virtual void prefetch() {}
  // The same shape, type and device as what was packed.
  virtual Tensor unpack() = 0;
};

class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  virtual std::unique_ptr<SavedTensor> pack(const Tensor&, const SavedInfo&) = 0;
};

// Put away as it is.
std::unique_ptr<SavedTensor> keep(Tensor);

}  // namespace spool
