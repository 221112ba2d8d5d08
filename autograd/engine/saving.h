#pragma once

// Saving owns what a tape saves for backward: it packs a value at its first save, unpacks it at its
// first read, and frees it after the last.
//
// The innermost hooks of the tape pack a value; without hooks, the plan and the open scopes say
// whether it is kept as it is or offloaded.  A value that is to be recomputed is counted but not
// saved; regions.h recomputes it.

#include <memory>
#include <vector>

#include "spool/autograd/engine/recycled.h"
#include "spool/autograd/program.h"
#include "spool/autograd/saved_tensor.h"
#include "spool/autograd/tape_options.h"

namespace spool {

class Saving {
 public:
  // The arguments must outlive this.
  Saving(Stream& stream, const TapeOptions& options, const Program& program)
      : stream_(stream), options_(options), program_(program) {}

  void push(SavedTensorHooks& hooks) { hooks_.push_back(&hooks); }
  void pop_hooks() { hooks_.pop_back(); }

  // In forward: counts one more read of the value by backward.
  void save(ValueId, const Tensor&);
  // Counts one read less.  After the last the value is freed.
  void release(ValueId);
  // As release(), in forward: what is packed stays so until backward, for a later op may save it.
  void release_in_forward(ValueId);
  // Frees what is packed and turned out not to be needed.
  void free_unread();
  // Forgets values from this one on, as the op that computes them has failed.
  void forget_from(ValueId);

  // In backward: counts more reads, or fewer, of a value that is recomputed.
  void add_reads(ValueId v, int reads) { at(v).reads += reads; }
  // Whether backward will read a value that is neither saved nor recomputed yet.
  bool is_missing(ValueId) const;
  bool exists(ValueId) const;
  // The value's tensor: a parameter's data, one that is live, or else it is unpacked; null if it
  // must be recomputed.
  const Tensor* find(ValueId);
  // For the tape of a chunk: an input, which lives as long as the tape.
  void provide(ValueId v, const Tensor& t) {
    at(v).live = t;
    ++at(v).reads;
  }
  // Stores a value that has been recomputed.
  void put(ValueId v, const Tensor& t) { at(v).live = t; }
  // Prefetches a value that backward will soon read.
  void prefetch(ValueId);
  void free_all();

  // Whether a user's hooks or the offloader have packed it.
  bool is_packed(ValueId v) const {
    return saved_.contains(v) && saved_[v].tensor && !saved_[v].on_device;
  }

 private:
  struct Saved {
    int reads = 0;  // by backward, still to come
    std::unique_ptr<SavedTensor> tensor = nullptr;
    bool on_device = false;  // saved as it is
    Tensor live = {};        // unpacked or recomputed, until the last read
  };
  Saved& at(ValueId v) {
    if (!saved_.contains(v)) [[unlikely]]
      grow();
    return saved_[v];
  }
  void grow();
  void pack(ValueId, const Tensor&, bool first);
  bool is_offloaded_by_scope(const Value&) const;
  Tensor unpack(ValueId);

  Stream& stream_;
  const TapeOptions& options_;
  const Program& program_;
  std::vector<SavedTensorHooks*> hooks_;  // the innermost last
  Recycled<IdTable<ValueId, Saved>> saved_;
  std::vector<ValueId> unread_;  // packed for a region that turned out not to need them
};

}  // namespace spool
