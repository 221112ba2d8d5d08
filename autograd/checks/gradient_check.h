#pragma once

// Finds ops that do not write the gradients that they ask for.  With SPOOL_CHECK=1 in the
// environment, memory that an op on the cpu is given for a gradient is filled with a NaN whose bits
// no arithmetic yields, and must be overwritten when the op is done.  Memory that a gradient is
// added to, or that it shares with another, is left alone.  WithGradientChecks does the same for
// the tapes of one thread, without the environment.

#include <cstdint>

#include "spool/autograd/engine/few.h"
#include "spool/kernels/launch.h"

namespace spool {

class GradientCheck {
 public:
  // Whether ops on this stream are checked.
  static bool covers(const Stream&);

  // Checks one call of an op's forward() or backward().
  GradientCheck(Stream& stream, const char* op) : stream_(stream), op_(op) {}

  // The op has asked for the gradient of this input.  Throws if it had before.
  void hand_out(int input, const Grad&);
  // The same for memory that already has values, which is not filled.
  void share(int input);
  bool handed_out(int input) const { return inputs_ >> input & 1; }
  uint32_t handed_out() const { return inputs_; }  // bit i: of input i
  // The op is done.  Waits for its work, and throws if it left part of a gradient unwritten.
  void finish() const;

 private:
  struct Filled {
    int input;
    View gradient;
  };

  Stream& stream_;
  const char* op_;
  uint32_t inputs_ = 0;  // handed out
  Few<Filled> filled_ = {};
};

// While it lives, ops of the tapes that this thread makes are checked.
class WithGradientChecks {
 public:
  WithGradientChecks();
  ~WithGradientChecks();
  WithGradientChecks(const WithGradientChecks&) = delete;
  WithGradientChecks& operator=(const WithGradientChecks&) = delete;
};

}  // namespace spool
