// Public: one of the headers of docs/public-headers.md.
#pragma once

// Shares tensors with PyTorch, NumPy and others through DLPack (dmlc.github.io/dlpack), without
// copying values.  A program that includes this header needs dlpack.h only to look into the struct.
//
// In Python a DLManagedTensor is in a capsule named "dltensor", which `__dlpack__()` returns and
// `from_dlpack()` takes; the consumer renames the capsule "used_dltensor".

#include "spool/runtime/tensor.h"

struct DLManagedTensor;

namespace spool {

// A tensor over the memory of another program (Tensor::over); calls the deleter when it is done
// with it.  The producer's work on the memory must be done, or ordered before the stream's.
//
// Throws, and leaves the deleter to the caller, unless the values are contiguous, of a type that
// DType has, at most four-dimensional, and on the stream's device; on meta, any device will do.
Tensor from_dlpack(DLManagedTensor*, Stream&, const Label& = {});

// The same memory for another program, which calls the deleter, on any thread, when it is done with
// it; until then the memory stays, and the stream must live.  Waits for the stream's work, so that
// the values are there.  Throws on meta.
DLManagedTensor* to_dlpack(const Tensor&);

}  // namespace spool
