#pragma once

// What a tape is told to do: plain data parallel to it.  Entry i is about value i, or node i; what
// a plan lacks means keep, and one chunk.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace spool {

using ValueId = int32_t;
using NodeId = int32_t;

// What becomes of a value that backward will need.
enum class Placement : uint8_t {
  keep,
  recompute,  // not saved: the inputs of the op that made it are, and the op runs again
  offload,    // copied off the device, and back before it is needed
};

enum class OffloadTarget : uint8_t { host, disk };

// How a value is offloaded.
struct Offload {
  ValueId value = -1;
  int64_t rows = -1;  // so many, the first, of its leading dimension go; the rest stay.  -1: all
  OffloadTarget target = OffloadTarget::host;
  // The places at which the device waits for the copy out and lets the memory go: before this node
  // runs in forward; and at which the copy back begins: before this node is differentiated.  -1:
  // the tape chooses (see offload.h).
  NodeId release = -1, fetch = -1;
  bool operator==(const Offload&) const = default;
};

// Consecutive nodes of which only what they read from outside is saved; they run again when
// backward comes to them, as far as it needs what they make.  Regions nest or are disjoint.  The
// placement of a value made in one is about its readers outside.
struct Region {
  NodeId first = 0, last = 0;
  bool operator==(const Region&) const = default;
};

// Where the optimizer keeps its moments and masters.
enum class OptimizerState : uint8_t {
  device,
  streamed,  // on the host; through the device, some at a time, in every step
  cpu,       // on the host, which also updates the parameters
};

struct Plan {
  std::vector<Placement> placement = {};  // of each value
  std::vector<Offload> offloads = {};     // by value, rising; not listed: whole, to the host
  std::vector<int> chunks = {};           // of each node
  std::vector<Region> regions = {};       // by first node, rising; the outer before the inner
  OptimizerState optimizer_state = OptimizerState::device;
  // What the tape it was made for looked like after each node; empty: not said.  See fingerprint.h.
  std::vector<uint64_t> fingerprints = {};
  bool operator==(const Plan&) const = default;
};

// Whether it sends anything off the device, or to a disk.
bool offloads(const Plan&);
bool offloads_to_disk(const Plan&);

// Throws a sentence if it speaks of values or nodes that cannot be, or contradicts itself.
void check_plan(const Plan&);

constexpr const char* name(Placement p) {
  constexpr const char* names[] = {"keep", "recompute", "offload"};
  return names[static_cast<size_t>(p)];
}
constexpr const char* name(OffloadTarget t) { return t == OffloadTarget::host ? "host" : "disk"; }
constexpr const char* name(OptimizerState s) {
  constexpr const char* names[] = {"device", "streamed", "cpu"};
  return names[static_cast<size_t>(s)];
}

}  // namespace spool
