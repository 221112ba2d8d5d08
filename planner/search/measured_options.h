#pragma once

// What the options of each segment cost, measured by rehearsals: segments of one kind try different
// options in one rehearsal, so that all 128 of a block take three rehearsals of 48 layers.
//
// An option has costs in seconds, in the bytes that it keeps while the segments after it run, and
// in the bytes that the segment itself needs, in forward and in backward, beyond what was live when
// it began.  With these,
//
//   live in segment l = live at first + what the segments below l keep + what l needs.
//
// Options that another one beats in all of them are left out.

#include <optional>
#include <vector>

#include "spool/planner/search/options.h"
#include "spool/planner/search/searched_step.h"

namespace spool {

// OffloadWay the optimizer's state to the host and streaming it through the device.
struct MeasuredState {
  size_t bytes = 0;  // that the device has less of if all state is on the host
  // So many of these bytes on the host, rising to all of them, and the seconds they cost.
  struct Share {
    double bytes = 0, seconds = 0;
  };
  std::vector<Share> shares = {};
  // The first bytes are copied while the device updates the rest, at no cost; then each has this.
  double last_seconds_per_byte = 0, free_bytes = 0;
  // What a step may take less with state on the host: nothing, unless kernels were measured badly.
  double gain = 0;
  size_t min_live = 0;  // as MeasuredSegments::min_live, if all state is on the host
};

struct MeasuredOption {
  SegmentOption option = {};
  double extra_seconds = 0;  // beyond keeping all, in a micro-batch
  int64_t extra_kept = 0;    // bytes, beyond those of keeping all
  int64_t extra_need = 0;    // the same, of what it needs in backward
  int64_t forward_need = 0;  // bytes that it needs in forward, of any segment of its kind
};

// A value that may be sent off the device between forward and backward.
struct OffloadableValue {
  ValueId value = -1;
  size_t bytes = 0;
};

struct MeasuredSegments {
  Program program = {};
  std::vector<Segment> segments = {};
  // By kind, then by choice of rows (as `rows`; of a kind that cannot be cut into chunks, one); the
  // first option keeps all.
  std::vector<std::vector<std::vector<MeasuredOption>>> options = {};
  // The choices of rows of a chunk (0: all), what each costs beyond the first in a step if all is
  // kept, and the most bytes that are live in each node that it cuts, less those of the first.
  std::vector<int64_t> rows = {0};
  std::vector<double> seconds_of_rows = {};
  std::vector<IdTable<NodeId, int64_t>> live_of_rows = {};
  // Of each kind, in seconds of a micro-batch, whichever it is: the least that an option with a
  // region in chunks costs beyond keeping all, infinite if there is none; and the most that such a
  // region takes less than to run again, whole, what it computes.  By the sums of a roofline it
  // takes no less, but kernels of fewer rows can be measured to be faster.
  std::vector<double> min_of_regions = {}, gain_of_regions = {};
  // Of keeping all with the first choice of rows.
  Survey keep_all = {};
  std::vector<size_t> needs = {};  // bytes of each segment, in backward
  // Bytes of each segment; below 0 if it frees more, of what it reads.
  std::vector<int64_t> keeps = {};
  std::vector<double> backward_seconds = {};  // of each segment, in a micro-batch
  size_t live_at_first = 0;                   // bytes
  size_t min_live = 0;             // bytes live outside of all segments, such as by the optimizer
  double seconds = 0;              // of the step
  double seconds_before_loss = 0;  // of a micro-batch, until the last segment runs
  double seconds_of_loss = 0;      // of the last segment's forward
  double seconds_after_loss = 0;
  int rehearsals = 0;
  std::vector<std::vector<OffloadableValue>> offloadable = {};  // of each segment
  std::optional<MeasuredState> state = {};                      // if it may leave the device

  // Bytes that a segment with this option can send.
  size_t offloadable_bytes(size_t segment, const MeasuredOption&) const;
  const std::vector<MeasuredOption>& options_of(size_t segment, size_t row_choice) const {
    const auto& by_rows = options[static_cast<size_t>(segments[segment].kind)];
    return by_rows[by_rows.size() == 1 ? 0 : row_choice];
  }
};

// The levers say which options there are.
MeasuredSegments measure_segments(const SearchedStep&, const Levers&);

// The plan in which each segment has one of its options.
Plan plan_of(const MeasuredSegments&, const std::vector<const SegmentOption*>& by_segment,
             const Levers&);

// The seconds of a step of n micro-batches, of which at most three were rehearsed and surveyed.
double step_seconds(const RehearsedStep&, int64_t micro_batches);

}  // namespace spool
