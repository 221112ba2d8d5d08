#pragma once

// A PeakRecorder knows what is live in an arena at its peak, and for which work it was allocated.
// It takes memory in proportion to what is live at a time.
//
// The peak is that of MemoryStats: the moment with the highest end and, of several, the one with
// the most live bytes.  Holes between blocks are in the peak and in no allocation.

#include <unordered_map>
#include <vector>

#include "spool/runtime/memory/arena.h"
#include "spool/runtime/trace.h"

namespace spool {

// An allocation that is live at the peak.
struct PeakAllocation {
  size_t bytes = 0;  // whole granules
  Spec spec = {};
  Label label = {};
  TraceContext work = {};  // that it was allocated for; none: outside of all named work
};

// Records during its lifetime.  An arena has at most one at a time.
class PeakRecorder {
 public:
  explicit PeakRecorder(Arena&);
  ~PeakRecorder();
  PeakRecorder(const PeakRecorder&) = delete;
  PeakRecorder& operator=(const PeakRecorder&) = delete;

  // Names the work for which memory is allocated from now on; returns what it was before.
  TraceContext enter(const TraceContext&);
  const TraceContext& work() const { return work_; }

  // By birth.  What was live before the recorder is not among them.
  std::vector<PeakAllocation> at_peak() const;

 private:
  friend class Arena;
  struct Born {
    size_t birth = 0;  // counts allocations
    PeakAllocation allocation = {};
  };
  void record_birth(const Arena::Block*, size_t bytes, const Spec&, const Label&);
  void record_death(const Arena::Block*);
  void record_peak();

  Arena& arena_;
  TraceContext work_ = {};
  std::unordered_map<const Arena::Block*, Born> live_;
  std::vector<Born> died_since_peak_;  // of those that were live then
  size_t births_ = 0, births_at_peak_ = 0;
};

}  // namespace spool
