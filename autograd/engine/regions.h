#pragma once

// Regions carries out what the plan and the scopes ask for: it decides, value by value, whether
// forward saves it or backward recomputes it, and when.
//
// Each read by backward has a level: the innermost region around the reader in which the value is
// computed, or none, -1.  A value read without a level is saved in forward, as its placement says.
// A value read at the level of a region is not saved: it is recomputed with the region, once,
// before the first such read, and lives until the last.  A region is itself a reader, of everything
// its nodes read that is computed before it; and a value to be recomputed that is in no region
// makes a region of its node.  So an inner region's values are computed and freed when the region
// around it is recomputed, and computed again when the inner region itself is.
//
// A region that runs in chunks counts what its nodes read in the same way, when it has run in
// forward.  Its nodes are never recomputed one by one: its leaves are recomputed where others read
// them, and its backward is that of its chunks (chunks/chunk_runner.h).  A region around it treats
// it as one node.
//
// regions.cpp has what happens in forward, recompute.cpp what happens in backward.

#include <optional>
#include <unordered_set>
#include <vector>

#include "spool/autograd/chunks/chunk_runner.h"
#include "spool/autograd/engine/node_runner.h"
#include "spool/autograd/engine/saving.h"
#include "spool/autograd/program.h"

namespace spool {

class Regions {
 public:
  // The arguments must outlive this.  Adds to the program's regions.
  Regions(const TapeOptions& options, Program& program, Saving& saving, NodeRunner& runner,
          const ChunkRunner& chunks)
      : options_(options), program_(program), saving_(saving), runner_(runner), chunks_(chunks) {}

  // In forward.  Open a region by hand at the next node; end it with the last node so far.
  RegionId open_by_hand();
  void close_by_hand(RegionId);
  // Whether something computed in the region, or in one within it, was left to be recomputed.
  bool recomputes_within(RegionId) const;
  // Opens the regions of the plan that begin at this node, the last so far.  Throws if regions do
  // not nest, or the node's op cannot be recomputed and is in one.
  void open_at(NodeId);
  // Saves what the node's backward reads, and what the regions around it read to be recomputed.  If
  // it throws, it has saved nothing.
  void save(NodeId, const Few<Tensor>& in, const Few<Tensor>& out);
  // Throws if a checkpoint that ended before the last node cut a region of the plan short.
  void check_not_cut_short() const;
  // Closes the regions of the plan that end at this node.
  void close_at(NodeId);

  // The region in chunks that is open; -1: none.
  RegionId open_chunked() const;
  bool ends_at(RegionId r, NodeId id) const { return states_[r].planned_last == id; }
  // As save(), of all nodes of a region in chunks, given those of its tensors that exist.
  void save_chunked(RegionId, const Tensors&);

  // To undo a node that fails.
  struct Before {
    RegionId next_region = 0;
    size_t next_planned = 0;
  };
  Before before() const { return {program_.regions.next_id(), next_planned_}; }
  void restore(const Before&, ValueId next_value);

  // Before backward.  Throws if the tape ends before a region of the plan does.
  void check_ends() const;
  void close_all();

  // In backward.  Tells saved tensors that this node's backward will soon read them.
  void prefetch_for(NodeId);
  // Begins to gather again what backward reads next of parameters that are not kept, from this node
  // on, beside the ops between; what is begun already is one of so many ahead.
  void gather_for(NodeId reader, int ahead);
  // Recomputes the regions that the node's backward reads from, before it allocates gradients.
  void recompute_for(NodeId);
  // The i-th tensor that the node saved.
  const Tensor& saved(NodeId, int i);
  // The region in chunks that ends with the node; -1: none.
  RegionId chunked_ending_at(NodeId) const;
  // The inputs that the backward of a region in chunks reads, without parameters.
  Tensors read_inputs(RegionId);
  // After the backward of a region in chunks.
  void leave_chunked(RegionId);
  // After the node's backward.
  void release_saved(NodeId);
  // For the tape of a chunk.  Counts what the node's backward reads.
  void note_saves(NodeId);
  // Asks for a value of the region, to be read when the region has been recomputed.
  void want(RegionId region, ValueId v) { states_[region].uses.push_back(v); }
  void recompute(RegionId);

  // Backward has passed the node: if nothing in a region that begins there was needed, frees what
  // the region reads.
  void leave_at(NodeId);

 private:
  // A region's state on the tape.
  struct State {
    NodeId planned_last = -1;         // its last node according to the plan
    bool recomputed = false;          // or backward has passed it, and nothing in it was needed
    std::vector<ValueId> reads = {};  // computed before it and read in it: saved to recompute it
    std::vector<ValueId> uses = {};   // computed in it and read in it by backward: not saved
    std::vector<ValueId> dropped_uses = {};  // uses that backward does not need any more
  };
  // A read by backward that was counted, so that it can be taken back.
  struct CountedUse {
    ValueId value;
    RegionId level;
    RegionId reader = -1;  // the region that reads it; -1: a node
  };
  using UndoLog = std::vector<CountedUse>;

  RegionId level(RegionId reader, ValueId) const;
  RegionId parent(RegionId r) const { return program_.regions[r].parent; }
  bool is_recomputed(ValueId v) const {
    return placement_of(options_.plan, v) == Placement::recompute;
  }

  void open(TapeRegion, NodeId planned_last);
  void close_innermost();
  void check_ended_before(NodeId) const;
  void add_saves(NodeId, const Few<Tensor>& in, const Few<Tensor>& out, UndoLog&);
  void add_region_reads(NodeId, const Few<Tensor>& in, UndoLog&);
  void add_use(const CountedUse&, const Tensor&, UndoLog&);
  void undo(UndoLog&);
  void drop_use(ValueId, RegionId level);
  void drop_use_in_forward(ValueId, RegionId level);
  void drop_unneeded_reads(RegionId);
  static std::unordered_set<ValueId> remaining_uses(const State&);

  struct Buffers;
  const Tensor& read(ValueId, RegionId level);
  RegionId region_of_missing(ValueId, RegionId level) const;
  void recompute_nodes(RegionId);
  bool is_needed(ValueId, const Buffers&) const;
  bool is_any_needed(const Few<ValueId>&, const Buffers&) const;
  std::vector<ValueId> needed_leaves(RegionId chunked, const Buffers&) const;
  void count_readers(RegionId, Buffers&) const;
  const Tensor& take(ValueId, RegionId, const Buffers&);
  void store(ValueId, const Tensor&, Buffers&);
  void release(ValueId, RegionId, Buffers&) const;
  void recompute_node(NodeId, RegionId, Buffers&);
  std::optional<NodeId> first_gather(RegionId) const;
  void gather_after(NodeId gather, RegionId, const Buffers&);
  void recompute_chunks(RegionId chunked, RegionId around, Buffers&);
  void recompute_leaves(RegionId);
  RegionId outermost_region(NodeId) const;

  const TapeOptions& options_;
  Program& program_;
  Saving& saving_;
  NodeRunner& runner_;
  const ChunkRunner& chunks_;
  IdTable<RegionId, State> states_;
  std::vector<RegionId> open_;              // the innermost last
  std::vector<RegionId> chunked_;           // those in chunks that have ended, in their order
  RegionId cut_short_ = -1;                 // a planned one that a checkpoint ended too early
  NodeId reader_ = -1;                      // for which something is recomputed
  size_t next_planned_ = 0;                 // index in the plan's regions
  IdTable<ValueId, RegionId> last_reader_;  // the innermost region around the last node that read
                                            // the value; values from its end on: none
};

}  // namespace spool
