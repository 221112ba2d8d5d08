#include <algorithm>
#include <iterator>

#include "spool/runtime/memory/arena.h"
#include "spool/runtime/memory/arena_block.h"
#include "spool/runtime/memory/layout.h"

namespace spool {

// Its bytes count as live only once something is placed in it.
Arena::Slab* Arena::open_slab(size_t bytes) {
  auto slab = std::make_unique<Slab>();
  if (bytes > 0) {
    const Spec spec{Shape{static_cast<int64_t>(bytes / sizeof(float))}};
    const Label label{.name = "the layout of a step"};
    slab->whole = fit(bytes, spec, label);
    slab->whole->spec = spec;
    slab->whole->label = label;
    update_peak();
  }
  return slabs_.emplace_back(std::move(slab)).get();
}

void Arena::close(Slab* slab) {
  slab->open = false;
  free_if_unused(slab);
}

void Arena::free_if_unused(const Slab* slab) {
  if (slab->open || !slab->placed.empty()) return;
  if (slab->whole) coalesce(slab->whole);
  std::erase_if(slabs_, [&](const auto& s) { return s.get() == slab; });
}

Arena::Block* Arena::place_next(size_t bytes, const Spec& spec, const Label& label) {
  const size_t within = placed_step_->offset(bytes, spec, label);
  Slab& slab = *placed_step_->slab_;
  const size_t offset = slab.whole->offset + within;
  if (const Block* live = overlapping(slab, offset, bytes)) {
    placed_step_->fail_overlap(label.name, spec, live->label.name, live->spec);
  }
  Block* block = place(slab, offset, bytes);
  placed_step_->advance();
  return block;
}

Arena::Block* Arena::place(Slab& slab, size_t offset, size_t bytes) {
  Block* block = unused_block();
  *block = {.offset = offset, .bytes = bytes, .slab = &slab};
  slab.placed.insert(std::ranges::lower_bound(slab.placed, offset, {}, &Block::offset), block);
  return block;
}

void Arena::remove_placed(Block* block) {
  Slab& slab = *block->slab;
  slab.placed.erase(std::ranges::lower_bound(slab.placed, block->offset, {}, &Block::offset));
  unused_.push_back(block);
  free_if_unused(&slab);
}

const Arena::Block* Arena::overlapping(const Slab& slab, size_t offset, size_t bytes) {
  const auto after = std::ranges::lower_bound(slab.placed, offset, {}, &Block::offset);
  if (after != slab.placed.end() && (*after)->offset < offset + bytes) return *after;
  if (after == slab.placed.begin()) return nullptr;
  const Block* before = *std::prev(after);
  return before->offset + before->bytes > offset ? before : nullptr;
}

std::optional<Name> Arena::name_of_live(const Slab& slab) {
  if (slab.placed.empty()) return {};
  return slab.placed.front()->label.name;
}

}  // namespace spool
