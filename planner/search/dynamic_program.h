#pragma once

// The fastest choice of an option for each segment, exactly, under a limit on live bytes.
//
// A segment may have an option if what it needs fits into its room: the limit less what was live at
// first and what the segments below it keep.  Segments are visited from the last to the first.  The
// least seconds that a segment and those after it cost beyond keeping all fall with its room, in
// steps, which are those of the segment after it, each moved by each option; of two steps the one
// with more room and more seconds is dropped.  They do not depend on the limit, nor on what is
// chosen below, so that they are found once for all limits.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "spool/planner/search/measured_options.h"

namespace spool {

// How the options of segments that send were chosen: the seconds that a byte was taken to cost, the
// part of the bytes that a link can move which were sent, and whether a part of a value may be.
struct OffloadWay {
  double price = 0, part = 0;
  bool divides = false;
  bool operator==(const OffloadWay&) const = default;
};

// Bytes that are live for segments that send while each segment runs; none: 0.
struct OthersBytes {
  std::vector<size_t> backward = {};  // what has come back for those below
  std::vector<size_t> forward = {};   // what has not left yet

  // All that is needed in a segment which itself needs so many bytes.
  int64_t with(size_t segment, int64_t needed, int64_t needed_in_forward) const {
    const auto in_backward = static_cast<int64_t>(backward.empty() ? 0 : backward[segment]);
    const auto in_forward = static_cast<int64_t>(forward.empty() ? 0 : forward[segment]);
    return std::max(needed + in_backward, needed_in_forward + in_forward);
  }
  bool operator==(const OthersBytes&) const = default;
};

struct Choice {
  std::vector<const MeasuredOption*> by_segment = {};
  // The parts of what the first segments can send that are sent, between 0 and 1.
  std::vector<double> offloaded = {};
  OffloadWay way = {};
  OthersBytes others = {};
  size_t row_choice = 0;     // of MeasuredSegments::rows
  double extra_seconds = 0;  // beyond keeping all, in a micro-batch

  // Bytes that the segment keeps on the device; below 0 if it frees more, of what it reads.
  int64_t kept(const MeasuredSegments&, size_t segment) const;
  bool operator==(const Choice&) const = default;
};

class FastestChoices {
 public:
  // `rows_allowed`: of each choice of rows.  The segments must outlive this.
  FastestChoices(const MeasuredSegments&, const std::vector<bool>& rows_allowed,
                 OthersBytes others = {});

  // The least seconds of the segments from `first` on, whose room is so many bytes; infinite if
  // there is no choice.
  double seconds(size_t first, int64_t room);
  // Adds these segments' options to those of the segments before.  There must be a choice.
  void complete(Choice&, int64_t room);

 private:
  // From so many bytes of room on, an option, and the seconds of its segment and those after it.
  struct Step {
    int64_t room = 0;
    double seconds = 0;
    int32_t option = -1, rows = 0;
  };
  using Steps = std::vector<Step>;  // by rising room and falling seconds
  // Segments that choose among these rows: the steps of none, of the last segment, of the one
  // before, and so on as far as they were asked for.
  struct Run {
    std::vector<size_t> rows;
    std::vector<Steps> after;
  };
  static void merge(const Steps& a, const Steps& b, Steps& merged);
  void extend(Run&);
  const Step* step(Run&, size_t segment, int64_t room);

  const MeasuredSegments& m_;
  OthersBytes others_;
  std::vector<Run> runs_;
};

// Nothing if no choice is within the limit.
std::optional<Choice> fastest_choice(const MeasuredSegments&, size_t limit,
                                     const std::vector<bool>& rows_allowed);

// Keeps all, with the first choice of rows.
Choice keep_all_choice(const MeasuredSegments&);

// The choices that give all segments of the most frequent kind one option, and keep all in the
// others, the fastest first.
std::vector<Choice> uniform_choices(const MeasuredSegments&);
// The same of the first segments alone; the others keep all.
Choice of_first_segments(const MeasuredSegments&, Choice uniform, size_t count);

// The most bytes that are live under a choice, of all segments or of the first ones.
size_t live_bytes(const MeasuredSegments&, const Choice&);

// Bytes that the segment needs with this option, with those that are live for others.
int64_t needed_bytes(const MeasuredSegments&, size_t segment, const MeasuredOption&,
                     const OthersBytes& = {});

// The same options in another order within each kind: of the segments that send nothing, those that
// keep least come first, so that equal layers with equal options stand together.  Unchanged if that
// needs more than the limit.
Choice in_groups(const MeasuredSegments&, Choice, size_t limit);

}  // namespace spool
