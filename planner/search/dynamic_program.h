#pragma once

// Finds the fastest choice of one option per segment, exactly, under a limit on live bytes.
//
// A segment's room is the limit less what was live at first and what the segments below it keep; an
// option is allowed if what it needs fits.  Segments are visited from the last to the first.  The
// minimum seconds of a segment and those after it, beyond keeping all, are a falling step function
// of its room: the function of the next segment, shifted by each option, without the steps that
// another one beats in room and seconds.  It depends neither on the limit nor on the choices below,
// so it is computed once for all limits.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "spool/planner/search/measured_options.h"

namespace spool {

// How the options of offloading segments were chosen: the assumed seconds per offloaded byte, the
// part of the link's bytes that is used, and whether a value may be divided.
struct OffloadWay {
  double price = 0, part = 0;
  bool divides = false;
  bool operator==(const OffloadWay&) const = default;
};

// Bytes live for offloading segments while each other segment runs; none: 0.
struct OthersBytes {
  std::vector<size_t> backward = {};  // what has come back for the segments below
  std::vector<size_t> forward = {};   // what has not left yet

  // The bytes needed in a segment that by itself needs `needed` in backward.
  int64_t with(size_t segment, int64_t needed, int64_t needed_in_forward) const {
    const auto in_backward = static_cast<int64_t>(backward.empty() ? 0 : backward[segment]);
    const auto in_forward = static_cast<int64_t>(forward.empty() ? 0 : forward[segment]);
    return std::max(needed + in_backward, needed_in_forward + in_forward);
  }
  bool operator==(const OthersBytes&) const = default;
};

struct Choice {
  std::vector<const MeasuredOption*> by_segment = {};
  // The bytes that each of the first segments offloads.
  std::vector<double> offloaded = {};
  OffloadWay way = {};
  OthersBytes others = {};
  size_t row_choice = 0;     // index into MeasuredSegments::rows
  double extra_seconds = 0;  // beyond keeping all, in a micro-batch

  // Bytes that the segment keeps on the device; negative if it frees more, of what it reads.
  int64_t kept(const MeasuredSegments&, size_t segment) const;
  bool operator==(const Choice&) const = default;
};

// Choices that are alike: what is alike is laid out without holes, so their plans may fit where
// those of faster choices do not.
struct Family {
  std::optional<size_t> row_choice = {};
  // The region of all segments of the most frequent kind, an index into options_with_region.
  std::optional<size_t> region = {};
  int max_chunks = std::numeric_limits<int>::max();  // of a region
  bool has(const MeasuredOption&) const;
};
// The first has regions of few chunks alone, as more chunks matter only where fewer bytes are
// wanted; the second has all choices; the others agree in their rows, in their region, or in both.
std::vector<Family> families_of(const MeasuredSegments&);
inline constexpr size_t first_alike_family = 2;

class FastestChoices {
 public:
  // The segments must outlive this.
  explicit FastestChoices(const MeasuredSegments&, OthersBytes others = {}, Family family = {});

  // The minimum seconds of the segments from `first` on, given this room in bytes; infinite if
  // there is no choice.
  double seconds(size_t first, int64_t room);
  // Appends the options of the remaining segments to the choice.  One must exist.
  void complete(Choice&, int64_t room);

 private:
  // From this room in bytes on: an option, and the seconds of its segment and those after it.
  struct Step {
    int64_t room = 0;
    double seconds = 0;
    int32_t option = -1, rows = 0;
  };
  using Steps = std::vector<Step>;  // by rising room and falling seconds
  // Segments that share a set of choices of rows.  after[i]: the steps of the last i segments, as
  // far as they were asked for.
  struct Run {
    std::vector<size_t> rows;
    std::vector<Steps> after;
  };
  // An option of a segment: what it adds to the steps of those after it, in less room than `until`.
  struct Shift {
    int64_t kept = 0, needed = 0;
    double seconds = 0;
    int32_t option = 0;
    int64_t until = std::numeric_limits<int64_t>::max();
  };
  std::vector<Shift> shifts_of(size_t segment, const std::vector<MeasuredOption>&) const;
  static void shift_by(const Shift&, const Steps& after, int32_t rows, Steps& shifted);
  static void merge(const Steps& a, const Steps& b, Steps& merged);
  void extend(Run&, std::vector<Steps>& by_option) const;
  const std::vector<MeasuredOption>& options_of(size_t segment, size_t rows) const;
  const Step* step(Run&, size_t segment, int64_t room);

  const MeasuredSegments& m_;
  OthersBytes others_;
  Family family_;
  int alike_kind_ = 0;
  std::vector<Run> runs_;
};

// The fastest choice within the limit; nothing if there is none.
std::optional<Choice> fastest_choice(const MeasuredSegments&, size_t limit);

// The choice that keeps all, with the first choice of rows.
Choice keep_all_choice(const MeasuredSegments&);

// The choices that give all segments of the most frequent kind the same option and keep all in the
// others, the fastest first.
std::vector<Choice> uniform_choices(const MeasuredSegments&);
// The same option for the first segments alone; the others keep all.
Choice of_first_segments(const MeasuredSegments&, Choice uniform, size_t count);

// The maximum of live bytes under a choice, over those segments for which it has an option.
size_t live_bytes(const MeasuredSegments&, const Choice&);
// The same without what is live outside of all segments, which is less if state is on the host.
size_t live_in_segments(const MeasuredSegments&, const Choice&);

// Bytes needed in the segment with this option, including those that are live for others.
int64_t needed_bytes(const MeasuredSegments&, size_t segment, const MeasuredOption&,
                     const OthersBytes& = {});

// Reorders options within each kind: among segments that offload nothing, those that keep least
// come first, so that equal layers with equal options stand together.  Unchanged if the new order
// needs more than the limit.
Choice in_groups(const MeasuredSegments&, Choice, size_t limit);

}  // namespace spool
