#pragma once

// A functor that a CUDA source and another apply: one op.

#include "spool/autograd/ops/map.h"

struct Doubled {
  static constexpr const char* name = "doubled";
  template <class T>
  SPOOL_HOST_DEVICE T value(T x) const {
    return 2 * x;
  }
  SPOOL_HOST_DEVICE int derivative(spool::Unread) const { return 2; }
};

spool::Var doubled_elsewhere(const spool::Operand& x);
bool runs_on_cuda_elsewhere();
