#pragma once

// Measures by rehearsals what the options of each segment cost.  A segment is a layer's part of the
// tape; an option, a choice of the values in it that are recomputed (options.h).  Segments of one
// kind try different options in one rehearsal, so all 128 of a block take three rehearsals of 48
// layers.
//
// An option's costs are seconds, bytes that it keeps while the segments after it run, and bytes
// that the segment itself needs, in forward and in backward, beyond what was live when it began:
//
//   live in segment l = live before all segments + what the segments below l keep + what l needs.
//
// Options that another one beats in all costs are left out.

#include <memory>
#include <optional>
#include <vector>

#include "spool/planner/search/options.h"
#include "spool/planner/search/searched_step.h"

namespace spool {

// Costs of streaming the optimizer's state from the host through the device.
struct MeasuredState {
  size_t bytes = 0;  // of the device that are saved if all state is on the host
  // Bytes on the host, rising to all of them, and the seconds that these cost.
  struct Share {
    double bytes = 0, seconds = 0;
  };
  std::vector<Share> shares = {};
  // The first `free_bytes` are copied at no cost while the device updates the rest.
  double last_seconds_per_byte = 0, free_bytes = 0;
  // Seconds by which state on the host may make a step faster: 0, unless kernels were mismeasured.
  double gain = 0;
  size_t min_live = 0;  // MeasuredSegments::min_live if all state is on the host
};

struct MeasuredOption {
  SegmentOption option = {};
  double extra_seconds = 0;  // beyond keeping all, in a micro-batch
  int64_t extra_kept = 0;    // bytes, beyond those of keeping all
  int64_t extra_need = 0;    // bytes needed in backward, beyond those of keeping all
  int64_t forward_need = 0;  // bytes needed in forward, by any segment of its kind
};

// Nodes that may run in chunks, counted from their segment's first.
struct MeasuredRegion {
  NodeId first = 0, last = 0;
  double min_seconds = 0;              // beyond keeping all, of any number of chunks
  std::vector<NodeId> run_again = {};  // the nodes that its recomputation runs
};

// A value that may be offloaded between forward and backward.
struct OffloadableValue {
  ValueId value = -1;
  size_t bytes = 0;
};

struct MeasuredSegments {
  std::shared_ptr<const Program> program = {};
  std::vector<Segment> segments = {};
  // By kind, then by choice of rows (only one for a kind without chunks); the first keeps all.
  std::vector<std::vector<std::vector<MeasuredOption>>> options = {};
  // Of the most frequent kind, for each region in chunks: the options with it that no other one of
  // them beats.
  std::vector<std::vector<MeasuredOption>> options_with_region = {};
  // The choices of rows of a chunk (0: all), and relative to the first of them, if all is kept:
  // seconds of a step, and the maximum of live bytes in each node that is cut.
  std::vector<int64_t> rows = {0};
  std::vector<double> seconds_of_rows = {};
  std::vector<IdTable<NodeId, int64_t>> live_of_rows = {};
  // By kind: the regions in chunks that its options have.
  std::vector<std::vector<MeasuredRegion>> regions = {};
  // For each kind, the maximum seconds of a micro-batch by which such a region is faster than
  // running again, whole, what it computes.  By the roofline that is 0, but kernels of fewer rows
  // can be measured to be faster.
  std::vector<double> gain_of_regions = {};
  // The survey of keeping all with the first choice of rows.
  Survey keep_all = {};
  std::vector<size_t> needs = {};  // bytes of each segment, in backward
  // Bytes of each segment; negative if it frees more, of what it reads.
  std::vector<int64_t> keeps = {};
  std::vector<double> backward_seconds = {};  // of each segment, in a micro-batch
  size_t live_at_first = 0;                   // bytes
  size_t min_live = 0;             // bytes live outside of all segments, as in the optimizer
  double seconds = 0;              // of the step
  double seconds_before_loss = 0;  // of a micro-batch, until the last segment runs
  double seconds_of_loss = 0;      // of the last segment's forward
  double seconds_after_loss = 0;
  int rehearsals = 0;
  std::vector<std::vector<OffloadableValue>> offloadable = {};  // of each segment
  std::optional<MeasuredState> state = {};                      // if it may leave the device

  // The same where the optimizer's state stays on the device, without rehearsals of its own.
  MeasuredSegments without_state() const;
  // Bytes that a segment with this option can offload.
  size_t offloadable_bytes(size_t segment, const MeasuredOption&) const;
  const std::vector<MeasuredOption>& options_of(size_t segment, size_t row_choice) const {
    const auto& by_rows = options[static_cast<size_t>(segments[segment].kind)];
    return by_rows[by_rows.size() == 1 ? 0 : row_choice];
  }
};

// `levers` says which options there are.
MeasuredSegments measure_segments(const SearchedStep&, const Levers&);

// Drops options that another one beats or equals in all costs, but not the first.
std::vector<MeasuredOption> undominated(std::vector<MeasuredOption>);
// The same among those with one region in chunks, for each region.
std::vector<std::vector<MeasuredOption>> undominated_by_region(const std::vector<MeasuredOption>&);

// The plan in which each segment has this option.
Plan plan_of(const MeasuredSegments&, const std::vector<const SegmentOption*>& by_segment,
             const Levers&);

// The seconds of a step of n micro-batches, of which at most three were rehearsed.
double step_seconds(const RehearsedStep&, int64_t micro_batches);

}  // namespace spool
