#pragma once

// The fastest choice of an option for each segment, exactly, under a limit on live bytes.
//
// Segments are visited in the order of forward.  A state is the bytes that the segments so far
// keep and the seconds they cost beyond keeping all; a segment may have an option if the bytes kept
// below it and what it needs itself are within the limit; and of two states the one with more of
// both is dropped.  So a late segment, below which much is kept, must need little, and an early one
// must leave room for the gradients of those after it, which its need includes.

#include <optional>
#include <vector>

#include "spool/planner/search/measured_options.h"

namespace spool {

// How the options of segments that send were chosen: the seconds that a byte was taken to cost, and
// the part of the bytes that a link can move which were sent.
struct Sending {
  double price = 0, part = 1;
  bool operator==(const Sending&) const = default;
};

struct Choice {
  std::vector<const MeasuredOption*> by_segment = {};
  // The parts of what the first segments can send that are sent, between 0 and 1.
  std::vector<double> sent = {};
  Sending sending = {};
  // Bytes that have come back for the segments below when each segment runs backward.
  std::vector<size_t> returned = {};
  size_t row_choice = 0;     // of MeasuredSegments::rows
  double extra_seconds = 0;  // beyond keeping all, in a micro-batch

  // Bytes that the segment keeps on the device; below 0 if it frees more, of what it reads.
  int64_t kept(const MeasuredSegments&, size_t segment) const;
  size_t returned_at(size_t segment) const { return returned.empty() ? 0 : returned[segment]; }
  bool operator==(const Choice&) const = default;
};

// `rows_allowed`: of each choice of rows.  `begin`: the options of the first segments, which are
// given, and what of them is sent.  Nothing if no choice is within the limit.
std::optional<Choice> fastest_choice(const MeasuredSegments&, size_t limit,
                                     const std::vector<bool>& rows_allowed,
                                     const Choice& begin = {});

// The most bytes that are live under a choice.
size_t live_bytes(const MeasuredSegments&, const Choice&);

// Bytes that the segment needs with this option, without what has come back for others.
size_t needed_bytes(const MeasuredSegments&, size_t segment, const MeasuredOption&);

// The same options in another order within each kind: of the segments that send nothing, those that
// keep least come first, so that equal layers with equal options stand together.  Unchanged if that
// needs more than the limit.
Choice in_groups(const MeasuredSegments&, Choice, size_t limit);

}  // namespace spool
