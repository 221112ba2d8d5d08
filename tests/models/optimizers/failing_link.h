#pragma once

// A HostLink whose copy streams fail at a call that a test chooses.

#include <memory>
#include <string>

#include "spool/runtime/memory/host_link.h"

namespace spool::testing {

// Counts the calls that enqueue work on a link's streams, and fails one of them; later ones work.
class CallCounter {
 public:
  // The n-th call from now on throws, n from 0 on; negative: none does.
  void fail_at(int64_t n) { left_ = n; }
  void count();

 private:
  int64_t left_ = -1;
};

// A link between a CpuStream and the host's memory.
std::unique_ptr<HostLink> failing_link(Stream& compute, size_t bytes, CallCounter&);

}  // namespace spool::testing
