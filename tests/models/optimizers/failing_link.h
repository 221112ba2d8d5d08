#pragma once

// A HostLink whose copy streams fail at a call that a test chooses, and a device of which all links
// do.

#include <memory>
#include <string>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/memory/host_link.h"

namespace spool::testing {

// Counts the calls that enqueue work on a link's streams, and fails one of them; later ones work.
class CallCounter {
 public:
  // The n-th call from now on throws, n from 0 on; negative: none does.
  void fail_at(int64_t n) { left_ = n; }
  void count();
  // Calls so far.
  int64_t counted() const { return counted_; }

 private:
  int64_t left_ = -1, counted_ = 0;
};

// A link between a CpuStream and the host's memory.
std::unique_ptr<HostLink> failing_link(Stream& compute, size_t bytes, CallCounter&);

// Counts the same calls on the streams of every link with it, and its own waits, events and copies.
class FailingCpuStream final : public CpuStream {
 public:
  using CpuStream::CpuStream;

  CallCounter calls;

  std::unique_ptr<Stream> side_stream() override;
  void copy(void* to, const void* from, size_t bytes) override;
  Event record() override;
  void wait(const Event&) override;
};

}  // namespace spool::testing
