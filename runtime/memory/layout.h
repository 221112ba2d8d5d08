// Public: one of the headers of docs/public-headers.md.
#pragma once

// A Layout places the memory of repeated work, such as a training step, in advance.  A rehearsal
// records the lifetimes of its allocations (lifetimes.h), the planner gives each an offset
// (planner/offsets.h), and a PlacedStep puts the i-th allocation at the i-th offset of a frame, a
// block of the arena.  Each allocation is checked against the rehearsal: same position, size and
// name, and its place must be free.  A deviation throws, so two live tensors never overlap.
//
// An allocation that is live across phases has one offset in all of them.  A phase may be skipped,
// and one that begins and ends with the same live allocations may be repeated.  Within a phase work
// may be repeated (repetition.h): its allocations go to the same offsets each time.

#include <optional>
#include <string>
#include <vector>

#include "spool/runtime/memory/arena.h"
#include "spool/runtime/memory/lifetimes.h"

namespace spool {

struct Layout {
  Lifetimes lifetimes = {};
  std::vector<size_t> offsets = {};  // one for each lifetime
  size_t bytes = 0;                  // size of the frame
  size_t live = 0;                   // most bytes live at once, a lower bound of `bytes`
};

// Places the allocations made during its lifetime by the layout, which must outlive it; does
// nothing without one.  An arena has at most one PlacedStep at a time.  Its frame is freed when the
// step has ended and everything in it has been freed.
class PlacedStep {
 public:
  // Throws Error (memory) if there is no room for the frame.
  PlacedStep(Arena&, const std::optional<Layout>&);
  ~PlacedStep();
  PlacedStep(const PlacedStep&) = delete;
  PlacedStep& operator=(const PlacedStep&) = delete;

  // Ends the step.  Throws if the phase lacks allocations, or one is still live.
  void finish();

  // Called by the arena.  place() throws unless this is the allocation that was rehearsed, and its
  // place is free.
  void begin_phase(size_t phase);
  Arena::Block* place(size_t bytes, const Spec&, const Label&);

  // Where the step is: its phase, and the index of the next allocation.
  struct Position {
    size_t phase = 0, next = 0;
  };
  Position position();
  // Goes back to an allocation of the same phase, for repeated work.
  void go_back(size_t next) { position_.next = next; }

 private:
  // The offset of the next allocation; throws unless this is the one that was rehearsed.
  size_t offset(size_t bytes, const Spec&, const Label&) const;
  std::string position_in_words() const;
  void check_complete() const;

  Arena& arena_;
  const Layout* layout_;
  Arena::Frame* frame_ = nullptr;
  Lifetimes::Phase current_ = {};
  Position position_ = {};
  bool begun_ = false;
};

}  // namespace spool
