// Public: one of the headers of docs/public-headers.md.
#pragma once

// A plan tells a tape which values to keep, recompute or offload, and into how many chunks to cut
// each op's work.  It is plain data, indexed as the tape is: entry i is about value i, or node i.
// A value without an entry is kept; a node without one has one chunk.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "spool/autograd/engine/id_table.h"
#include "spool/runtime/names.h"

namespace spool {

class Parameters;

using ValueId = int32_t;
using NodeId = int32_t;

// What becomes of a value that backward reads.
enum class Placement : uint8_t {
  keep,
  recompute,  // not saved: backward recomputes it from the inputs of its op, which are
  offload,    // copied off the device after forward, and back before backward reads it
};
template <>
inline constexpr std::array enumerator_names<Placement>{"keep", "recompute", "offload"};

enum class OffloadTarget : uint8_t { host, disk };
template <>
inline constexpr std::array enumerator_names<OffloadTarget>{"host", "disk"};

// How a value is offloaded.
struct Offload {
  ValueId value = -1;
  int64_t rows = -1;  // the first rows along its leading dimension that are offloaded; -1: all
  OffloadTarget target = OffloadTarget::host;
  // `release`: before this node runs in forward, or, if it is the number of nodes, before backward,
  // the device waits for the copy out and frees the value's memory.  `fetch`: before this node's
  // backward, the copy back begins.  -1: the tape chooses (see offload.h).
  NodeId release = -1, fetch = -1;
  bool operator==(const Offload&) const = default;
};

// Consecutive nodes that are recomputed in backward, as far as backward reads what they compute;
// only what they read from outside is saved.  Regions nest or are disjoint, with each other and
// with hand-made checkpoints; one that begins with a checkpoint lies in it.  The placement of a
// value computed in a region applies to its readers outside.
//
// A region of more than one chunk runs, in forward and again in backward, a part of its rows at a
// time (chunks/cut.h says along which index); values that only its nodes read exist one chunk at a
// time. It may lie in a recomputed region, but not in another one that runs in chunks.
struct Region {
  NodeId first = 0, last = 0;
  int chunks = 1;  // upper bound
  // Values computed in a region of several chunks and read outside of it, or by the caller; rising.
  std::vector<ValueId> leaves = {};
  bool operator==(const Region&) const = default;
};

// Where the optimizer's state (moments and masters) is.
enum class OptimizerState : uint8_t {
  device,
  streamed,  // on the host, except for a share; each step moves it through the device in parts
  cpu,       // on the host, which also updates the parameters
};
template <>
inline constexpr std::array enumerator_names<OptimizerState>{"device", "streamed", "cpu"};

// When parameters are updated.
enum class UpdateTime : uint8_t {
  end,       // after backward of all micro-batches
  backward,  // each when its gradient is final, which must not be clipped
};
template <>
inline constexpr std::array enumerator_names<UpdateTime>{"end", "backward"};

// Parameters that only the nodes `first` to `last` read, such as those of a block.  Where they and
// their gradients live is decided for all of them together; what is away lives in host memory
// (homes.h), and so does all of its optimizer state, which is streamed.
struct PlannedUnit {
  NodeId first = 0, last = 0;
  std::vector<uint32_t> parameters = {};   // their numbers in Parameters, rising
  std::vector<NodeId> first_readers = {};  // of each, the first node that reads it
  bool parameters_away = false, gradients_away = false;
  // Before these nodes run in forward and in backward, what is away and needed there is copied in.
  // `backward_fetch` may be the number of nodes: as backward begins.
  NodeId forward_fetch = 0, backward_fetch = 0;
  bool stays = false;  // parameters that are away stay on the device from forward into backward
  // Whether they are copied in for backward; if it reads one nevertheless, that is copied in there.
  bool in_backward = true;
  // Whether what backward needs is copied in for forward already, as of the last nodes, whose
  // gradients are final as backward begins.
  bool all_in_forward = false;
  bool operator==(const PlannedUnit&) const = default;
};

struct Plan {
  IdTable<ValueId, Placement> placement = {};
  std::vector<Offload> offloads = {};  // by rising value; values without one: all rows, to the host
  IdTable<NodeId, int> chunks = {};
  std::vector<Region> regions = {};  // by rising first node; an outer one before those in it
  OptimizerState optimizer_state = OptimizerState::device;
  size_t state_bytes_on_device = 0;     // upper bound, of streamed state
  int buckets_in_flight = 0;            // of gradients that ranks exchange beside backward; 0: 2
  std::vector<PlannedUnit> units = {};  // by rising nodes; parameters in none live on the device
  UpdateTime update = UpdateTime::end;  // of the units' parameters; of all others at the end
  // How many units' bytes may be on their way to the host: beyond that the device waits for the
  // first of them.
  double units_leaving = 1;
  // Elements of the row of parameters whose streamed state is on the device at a time, a multiple
  // of 2048; 0: an eighth of them, at most 4 Mi.
  int64_t bucket_elements = 0;
  // The fingerprint of the plan's tape after each node (see fingerprint.h); empty: any tape.
  IdTable<NodeId, uint64_t> fingerprints = {};
  bool operator==(const Plan&) const = default;
};

inline Placement placement_of(const Plan& plan, ValueId v) {
  return plan.placement.value_or(v, Placement::keep);
}
// How a value is offloaded; all rows, to the host, if the plan does not say.
Offload offload_of(const Plan&, ValueId);

// Gives the plan the units of another one for the same tape, and when they are updated.
void take_homes(Plan&, const Plan& of);
// Whether parameters or gradients live on the host.
bool has_homes(const Plan&);
// Whether they do, or some are updated in backward.
inline bool uses_homes(const Plan& plan) {
  return plan.update == UpdateTime::backward || has_homes(plan);
}
// What of each unit lives on the host, whether it is updated in backward, and the buckets of state:
// by plans of one model where this is equal, work beside its steps takes equal memory.
std::vector<int64_t> homes_of(const Plan&);
// By their numbers, which parameters live on the host; empty if none do.
std::vector<bool> parameters_away(const Plan&);

// Whether a value is offloaded at all, or to a disk.
bool offloads(const Plan&);
bool offloads_to_disk(const Plan&);

// Puts the regions in the order that check_plan() asks for: by first node, an outer one before
// those in it.
void sort_regions(Plan&);

// Throws if the plan names values or nodes that cannot exist, or contradicts itself.
void check_plan(const Plan&);
// Throws if the units name parameters that are not among these.
void check_units(const Plan&, const Parameters&);

}  // namespace spool
