#include "spool/runtime/memory/arena.h"

#include <algorithm>

#include "spool/runtime/hash.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/memory/arena_block.h"
#include "spool/runtime/memory/layout.h"
#include "spool/runtime/units.h"

namespace spool {
namespace {

constexpr auto smaller = [](const auto& a, const auto& b) {
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.offset < b.offset;
};
constexpr auto deref = [](const auto* block) -> const auto& { return *block; };

// Blocks' hashes are combined by exclusive or, so that their order does not matter.
uint64_t hash_of(uint64_t offset, uint64_t bytes) {
  return mix_bits(offset * golden_ratio_bits + bytes);
}

}  // namespace

Arena::Arena(std::byte* base, size_t capacity, std::string device, size_t multiple)
    : base_(base), device_(std::move(device)), granule_(multiple) {
  stats_.capacity = capacity;
}

Arena::~Arena() = default;

// Integer arithmetic: on meta there is no memory behind the address.
std::byte* Arena::address(const Block* block) const {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(base_) + block->offset);
}

void Arena::begin_phase(size_t phase) {
  if (log_) log_->record_phase(phase);
  if (placed_step_) placed_step_->begin_phase(phase);
}

Arena::Block* Arena::allocate(const Spec& spec, const Label& label) {
  const size_t bytes = std::max(ceil_div(spec.nbytes(), granule_), size_t{1}) * granule_;
  Block* block = placed_step_ ? placed_step_->place(bytes, spec, label) : fit(bytes, spec, label);
  block->number = allocations_++;
  block->spec = spec;
  block->label = label;
  count_live(*block);
  return block;
}

void Arena::free(Block* block) {
  count_freed(*block);
  block->frame ? remove_placed(block) : coalesce(block);
}

Arena::Block* Arena::fit(size_t bytes, const Spec& spec, const Label& label) {
  Block* block = take_free(bytes);
  if (!block) block = append(bytes);
  if (!block) fail_to_fit(bytes, spec, label);
  block->free = false;
  return block;
}

// Best fit: the smallest free block that is large enough; of equal ones, the one at the lowest
// offset.
Arena::Block* Arena::take_free(size_t bytes) {
  const auto at = std::ranges::lower_bound(free_, bytes, {}, &Block::bytes);
  if (at == free_.end()) return nullptr;
  Block* block = *at;
  free_.erase(at);
  split(block, bytes);
  return block;
}

Arena::Block* Arena::append(size_t bytes) {
  if (bytes > stats_.capacity || end_ > stats_.capacity - bytes) return nullptr;
  Block* block = insert_after(last_, end_, bytes);
  end_ += bytes;
  return block;
}

void Arena::split(Block* block, size_t bytes) {
  if (block->bytes == bytes) return;
  Block* rest = insert_after(block, block->offset + bytes, block->bytes - bytes);
  block->bytes = bytes;
  rest->free = true;
  add_free(rest);
}

Arena::Block* Arena::insert_after(Block* previous, size_t offset, size_t bytes) {
  Block* block = unused_block();
  Block* next = previous ? previous->next : nullptr;
  *block = {.offset = offset, .bytes = bytes, .previous = previous, .next = next};
  if (previous) previous->next = block;
  (next ? next->previous : last_) = block;
  return block;
}

Arena::Block* Arena::unused_block() {
  if (unused_.empty()) return blocks_.emplace_back(std::make_unique<Block>()).get();
  Block* block = unused_.back();
  unused_.pop_back();
  return block;
}

void Arena::coalesce(Block* block) {
  block->free = true;
  if (block->next && block->next->free) {
    remove_free(block->next);
    absorb_next(block);
  }
  if (block->previous && block->previous->free) {
    block = block->previous;
    remove_free(block);
    absorb_next(block);
  }
  if (block == last_) return return_to_tail(block);
  add_free(block);
}

void Arena::absorb_next(Block* block) {
  Block* next = block->next;
  block->bytes += next->bytes;
  block->next = next->next;
  (next->next ? next->next->previous : last_) = block;
  unused_.push_back(next);
}

void Arena::return_to_tail(Block* last) {
  end_ = last->offset;
  last_ = last->previous;
  if (last_) last_->next = nullptr;
  unused_.push_back(last);
}

void Arena::add_free(Block* block) {
  free_.insert(std::ranges::lower_bound(free_, *block, smaller, deref), block);
}

void Arena::remove_free(Block* block) {
  free_.erase(std::ranges::lower_bound(free_, *block, smaller, deref));
}

void Arena::count_live(const Block& block) {
  stats_.live += block.bytes;
  max_live_ = std::max(max_live_, stats_.live);
  stats_.live_hash ^= hash_of(block.offset, block.bytes);
  stats_.live_by[block.label.purpose] += block.bytes;
  if (log_) log_->record_birth(block);
  update_peak();
}

void Arena::count_freed(const Block& block) {
  if (log_) log_->record_death(block);
  stats_.live -= block.bytes;
  stats_.live_hash ^= hash_of(block.offset, block.bytes);
  stats_.live_by[block.label.purpose] -= block.bytes;
}

// The peak is the moment with the highest end and, of several, the one with the most live bytes.
void Arena::update_peak() {
  if (end_ < stats_.peak || (end_ == stats_.peak && stats_.live <= live_at_peak_)) return;
  stats_.peak = end_;
  stats_.at_peak_by = stats_.live_by;
  live_at_peak_ = stats_.live;
  if (log_) log_->record_peak();
}

bool Arena::count_again_from(const MemoryStats& then) {
  if (stats_.live_hash != then.live_hash || stats_.live != then.live) return false;
  if (stats_.external != then.external) return false;
  stats_ = then;
  live_at_peak_ = 0;
  for (const size_t bytes : then.at_peak_by) live_at_peak_ += bytes;
  return true;
}

void Arena::fail_to_fit(size_t bytes, const Spec& spec, const Label& label) const {
  size_t largest_free = stats_.capacity - end_;
  if (!free_.empty()) largest_free = std::max(largest_free, free_.back()->bytes);
  std::string live;
  for (const Purpose p : enumerators<Purpose>()) {
    if (stats_.live_by[p] == 0) continue;
    live += sentence(live.empty() ? "" : ", ", name(p), " ", format_bytes(stats_.live_by[p]));
  }
  const Block* largest = nullptr;
  for (const Block* b = last_; b; b = b->previous) {
    if (!b->free && (!largest || b->bytes > largest->bytes)) largest = b;
  }
  const std::string largest_live = largest ? sentence("; the largest allocation is ",
                                                      largest->label.name, " (", largest->spec, ")")
                                           : "";
  fail_memory({.what = sentence(device_, ": to allocate ", label.name, " (", spec, ", ",
                                format_bytes(bytes), ") the arena"),
               .needed = end_ + bytes,
               .available = stats_.capacity,
               .advice = sentence("the largest free block has ", format_bytes(largest_free),
                                  "; live: ", live.empty() ? "nothing" : live, largest_live),
               .op = label.name.c_str()});
}

}  // namespace spool
