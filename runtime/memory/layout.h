#pragma once

// Memory of a stretch of work that is repeated, such as a training step, placed in advance.  A
// LifetimeRecorder notes who is held and from when to when, as the stretch is rehearsed; the
// planner gives every allocation an offset (planner/layout.h); a PlacedStep then puts the i-th
// allocation at the i-th offset, within one block that it takes from the arena when it begins. What
// is asked for is checked against what was rehearsed, in number, bytes and name, and so is that
// nobody is still held where it goes: a deviation is an Error that says so, and never two tensors
// in one place.
//
// The stretch may have phases, whose beginning Arena::begin_phase() tells: what is held across them
// has one offset in all, a phase may be left out, and one that leaves held what was held before may
// be repeated.  Without a word it is phase 0.

#include <optional>
#include <unordered_map>
#include <vector>

#include "spool/runtime/memory/arena.h"

namespace spool {

// An allocation: held from its birth until its death, counted in allocations and frees.
struct Lifetime {
  size_t bytes = 0;  // whole granules
  Label label = {};
  size_t birth = 0, death = 0;
};

struct Lifetimes {
  struct Phase {
    size_t begin = 0, end = 0;
  };
  std::vector<Lifetime> all = {};  // by birth
  std::vector<Phase> phases = {};  // which of them are whose
};

struct Layout {
  Lifetimes lifetimes = {};
  std::vector<size_t> offsets = {};  // of each of them
  size_t bytes = 0;                  // from the first to the last
  size_t live = 0;                   // the most that are held at a time: no layout takes less
};

// Notes what is allocated while it lives.  One at a time for an arena.
class LifetimeRecorder {
 public:
  explicit LifetimeRecorder(Arena&);
  ~LifetimeRecorder();
  LifetimeRecorder(const LifetimeRecorder&) = delete;
  LifetimeRecorder& operator=(const LifetimeRecorder&) = delete;

  // Ends it.  Throws where something that it saw allocated is still held.
  Lifetimes finish();

 private:
  friend class Arena;
  void begin_phase(size_t phase);
  void begin(const Arena::Block*, size_t bytes, const Label&);
  void end(const Arena::Block*);

  Arena& arena_;
  Lifetimes seen_;
  std::unordered_map<const Arena::Block*, size_t> held_;
  size_t now_ = 0, phase_ = 0;
};

// Places what is allocated while it lives by the layout, which must outlive it; without one it does
// nothing.  One at a time for an arena.  Its block is kept beyond its end for as long as something
// in it is held.
class PlacedStep {
 public:
  // Throws Error (memory) where the block is more than there is.
  PlacedStep(Arena&, const std::optional<Layout>&);
  ~PlacedStep();
  PlacedStep(const PlacedStep&) = delete;
  PlacedStep& operator=(const PlacedStep&) = delete;

  // Ends it.  Throws where the phase lacks allocations, or one is still held.
  void finish();

 private:
  friend class Arena;
  void begin_phase(size_t phase);
  // Where the next allocation goes, if it is this one.
  size_t offset(size_t bytes, const Spec&, const Label&);
  void advance() { ++next_; }
  [[noreturn]] void refuse(const char* asked, const Spec&, const char* held,
                           const Spec& held_spec) const;
  std::string position() const;
  void check_complete() const;

  Arena& arena_;
  const Layout* layout_;
  Arena::Slab* slab_ = nullptr;
  Lifetimes::Phase within_ = {};
  size_t next_ = 0, phase_ = 0;
  bool begun_ = false;
};

}  // namespace spool
