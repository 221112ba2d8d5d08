#include <algorithm>
#include <iterator>

#include "spool/runtime/memory/arena_block.h"

namespace spool {

const Arena::Block* Arena::Frame::overlapping(size_t offset, size_t bytes) const {
  const auto after = std::ranges::lower_bound(placed, offset, {}, &Block::offset);
  if (after != placed.end() && (*after)->offset < offset + bytes) return *after;
  if (after == placed.begin()) return nullptr;
  const Block* before = *std::prev(after);
  return before->offset + before->bytes > offset ? before : nullptr;
}

Arena::Frame* Arena::open_frame(size_t bytes) {
  auto frame = std::make_unique<Frame>();
  if (bytes > 0) {
    const Spec spec{Shape{static_cast<int64_t>(bytes / sizeof(float))}};
    const Label label{.name = "the layout of a step"};
    frame->whole = fit(bytes, spec, label);
    frame->whole->spec = spec;
    frame->whole->label = label;
    update_peak();
  }
  return frames_.emplace_back(std::move(frame)).get();
}

void Arena::close(Frame* frame) {
  frame->open = false;
  free_if_unused(frame);
}

void Arena::free_if_unused(const Frame* frame) {
  if (frame->open || !frame->placed.empty()) return;
  if (frame->whole) coalesce(frame->whole);
  std::erase_if(frames_, [&](const auto& f) { return f.get() == frame; });
}

Arena::Block* Arena::place(Frame& frame, size_t offset, size_t bytes) {
  Block* block = unused_block();
  *block = {.offset = offset, .bytes = bytes, .frame = &frame};
  frame.placed.insert(std::ranges::lower_bound(frame.placed, offset, {}, &Block::offset), block);
  return block;
}

void Arena::remove_placed(Block* block) {
  Frame& frame = *block->frame;
  frame.placed.erase(std::ranges::lower_bound(frame.placed, block->offset, {}, &Block::offset));
  unused_.push_back(block);
  free_if_unused(&frame);
}

}  // namespace spool
