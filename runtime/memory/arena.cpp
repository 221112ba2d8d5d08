#include "spool/runtime/memory/arena.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "spool/runtime/memory/layout.h"
#include "spool/runtime/units.h"

namespace spool {

struct Arena::Block {
  size_t offset = 0, bytes = 0;
  Block* previous = nullptr;  // by offset
  Block* next = nullptr;
  bool free = false;
  Slab* slab = nullptr;  // that it lies in
  Spec spec = {};
  Label label = {};
};

namespace {

constexpr auto smaller = [](const auto& a, const auto& b) {
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.offset < b.offset;
};
// Of a block, to be joined by exclusive or, so that the order does not matter (splitmix64's
// mixing).
uint64_t hash_of(uint64_t offset, uint64_t bytes) {
  uint64_t x = offset * 0x9E3779B97F4A7C15u + bytes;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

constexpr auto deref = [](const auto* block) -> const auto& { return *block; };

}  // namespace

const char* name(Purpose p) {
  constexpr std::array<const char*, purpose_count> names{"parameters",  "gradients", "optimizer",
                                                         "activations", "workspace", "inputs"};
  return names[static_cast<size_t>(p)];
}

const char* intern(std::string_view text) {
  static std::mutex mutex;
  static std::unordered_set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.emplace(text).first->c_str();
}

void Arena::list(Block* block) {
  free_.insert(std::ranges::lower_bound(free_, *block, smaller, deref), block);
}

void Arena::unlist(Block* block) {
  free_.erase(std::ranges::lower_bound(free_, *block, smaller, deref));
}

Arena::Arena(std::byte* base, size_t capacity, std::string device, size_t multiple)
    : base_(base), device_(std::move(device)), granule_(multiple) {
  stats_.capacity = capacity;
}

Arena::~Arena() = default;

// As a number, as there may be no memory to point into.
std::byte* Arena::address(const Block* block) const {
  return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(base_) + block->offset);
}

Arena::Block* Arena::allocate(const Spec& spec, const Label& label) {
  const size_t bytes = std::max((spec.nbytes() + granule_ - 1) / granule_, size_t{1}) * granule_;
  Block* block = placed_step_ ? replay(bytes, spec, label) : reserve(bytes, spec, label);
  block->spec = spec;
  block->label = label;
  count_in(*block);
  if (recorder_) recorder_->begin(block, bytes, label);
  return block;
}

Arena::Block* Arena::reserve(size_t bytes, const Spec& spec, const Label& label) {
  Block* block = take(bytes);
  if (!block) block = append(bytes);
  if (!block) refuse(bytes, spec, label);
  block->free = false;
  return block;
}

// The smallest free block that is large enough, the first of these.
Arena::Block* Arena::take(size_t bytes) {
  const auto at = std::ranges::lower_bound(free_, bytes, {}, &Block::bytes);
  if (at == free_.end()) return nullptr;
  Block* block = *at;
  free_.erase(at);
  cut(block, bytes);
  return block;
}

Arena::Block* Arena::append(size_t bytes) {
  if (bytes > stats_.capacity || end_ > stats_.capacity - bytes) return nullptr;
  Block* block = make(end_, bytes, last_);
  end_ += bytes;
  return block;
}

void Arena::cut(Block* block, size_t bytes) {
  if (block->bytes == bytes) return;
  Block* rest = make(block->offset + bytes, block->bytes - bytes, block);
  block->bytes = bytes;
  rest->free = true;
  list(rest);
}

Arena::Block* Arena::unused() {
  if (spare_.empty()) return blocks_.emplace_back(std::make_unique<Block>()).get();
  Block* block = spare_.back();
  spare_.pop_back();
  return block;
}

Arena::Block* Arena::make(size_t offset, size_t bytes, Block* previous) {
  Block* block = unused();
  Block* next = previous ? previous->next : nullptr;
  *block = {.offset = offset, .bytes = bytes, .previous = previous, .next = next};
  if (previous) previous->next = block;
  (next ? next->previous : last_) = block;
  return block;
}

void Arena::free(Block* block) {
  if (recorder_) recorder_->end(block);
  count_out(*block);
  block->slab ? remove(block) : put_back(block);
}

void Arena::put_back(Block* block) {
  block->free = true;
  if (block->next && block->next->free) {
    unlist(block->next);
    absorb_next(block);
  }
  if (block->previous && block->previous->free) {
    block = block->previous;
    unlist(block);
    absorb_next(block);
  }
  if (block == last_) return give_up(block);
  list(block);
}

// The last block becomes part of the tail.
void Arena::give_up(Block* block) {
  end_ = block->offset;
  last_ = block->previous;
  if (last_) last_->next = nullptr;
  spare_.push_back(block);
}

void Arena::absorb_next(Block* block) {
  Block* next = block->next;
  block->bytes += next->bytes;
  block->next = next->next;
  (next->next ? next->next->previous : last_) = block;
  spare_.push_back(next);
}

void Arena::count_in(const Block& block) {
  stats_.live += block.bytes;
  stats_.placement ^= hash_of(block.offset, block.bytes);
  stats_.live_by[static_cast<size_t>(block.label.purpose)] += block.bytes;
  note_peak();
}

void Arena::count_out(const Block& block) {
  stats_.live -= block.bytes;
  stats_.placement ^= hash_of(block.offset, block.bytes);
  stats_.live_by[static_cast<size_t>(block.label.purpose)] -= block.bytes;
}

void Arena::note_peak() {
  if (end_ < stats_.peak || (end_ == stats_.peak && stats_.live <= live_at_peak_)) return;
  stats_.peak = end_;
  stats_.at_peak_by = stats_.live_by;
  live_at_peak_ = stats_.live;
}

void Arena::refuse(size_t bytes, const Spec& spec, const Label& label) const {
  size_t largest = stats_.capacity - end_;
  if (!free_.empty()) largest = std::max(largest, free_.back()->bytes);
  std::string held;
  for (size_t p = 0; p < purpose_count; ++p) {
    if (stats_.live_by[p] == 0) continue;
    held += sentence(held.empty() ? "" : ", ", name(static_cast<Purpose>(p)), " ",
                     format_bytes(stats_.live_by[p]));
  }
  const Block* most = nullptr;
  for (const Block* b = last_; b; b = b->previous) {
    if (!b->free && (!most || b->bytes > most->bytes)) most = b;
  }
  const std::string biggest =
      most ? sentence("; the largest is ", most->label.name, " (", most->spec, ")") : "";
  throw Error(ErrorKind::memory,
              sentence(device_, ": ", label.name, " (", spec, ") needs ", format_bytes(bytes),
                       ", and of the budget of ", format_bytes(stats_.capacity), " at most ",
                       format_bytes(largest), " are free in one piece; held: ",
                       held.empty() ? "nothing" : held, biggest, ". A budget of ", end_ + bytes,
                       " bytes (", format_bytes(end_ + bytes), ") would get past this tensor"),
              {.needed = end_ + bytes, .capacity = stats_.capacity, .op = label.name, .file = {}});
}

// ---------------------------------------------------------------------- placed by a layout

void Arena::begin_phase(size_t phase) {
  if (recorder_) recorder_->begin_phase(phase);
  if (placed_step_) placed_step_->begin_phase(phase);
}

// None of its bytes are counted as held before something is put there.
Arena::Slab* Arena::open_slab(size_t bytes) {
  auto slab = std::make_unique<Slab>();
  if (bytes > 0) {
    const Spec spec{Shape{static_cast<int64_t>(bytes / sizeof(float))}};
    const Label label{.name = "the layout of a step"};
    slab->whole = reserve(bytes, spec, label);
    slab->whole->spec = spec;
    slab->whole->label = label;
    note_peak();
  }
  return slabs_.emplace_back(std::move(slab)).get();
}

Arena::Block* Arena::replay(size_t bytes, const Spec& spec, const Label& label) {
  const size_t within = placed_step_->offset(bytes, spec, label);
  Slab& slab = *placed_step_->slab_;
  const size_t offset = slab.whole->offset + within;
  if (const Block* held = overlapping(slab, offset, bytes)) {
    placed_step_->refuse(label.name, spec, held->label.name, held->spec);
  }
  Block* block = put(slab, offset, bytes);
  placed_step_->advance();
  return block;
}

const Arena::Block* Arena::overlapping(const Slab& slab, size_t offset, size_t bytes) {
  const auto after = std::ranges::lower_bound(slab.held, offset, {}, &Block::offset);
  if (after != slab.held.end() && (*after)->offset < offset + bytes) return *after;
  if (after == slab.held.begin()) return nullptr;
  const Block* before = *std::prev(after);
  return before->offset + before->bytes > offset ? before : nullptr;
}

Arena::Block* Arena::put(Slab& slab, size_t offset, size_t bytes) {
  Block* block = unused();
  *block = {.offset = offset, .bytes = bytes, .slab = &slab};
  slab.held.insert(std::ranges::lower_bound(slab.held, offset, {}, &Block::offset), block);
  return block;
}

void Arena::remove(Block* block) {
  Slab& slab = *block->slab;
  slab.held.erase(std::ranges::lower_bound(slab.held, block->offset, {}, &Block::offset));
  spare_.push_back(block);
  let_go(&slab);
}

void Arena::close(Slab* slab) {
  slab->open = false;
  let_go(slab);
}

// If nobody needs it any longer.
void Arena::let_go(const Slab* slab) {
  if (slab->open || !slab->held.empty()) return;
  if (slab->whole) put_back(slab->whole);
  std::erase_if(slabs_, [&](const auto& s) { return s.get() == slab; });
}

const char* Arena::name_of_held(const Slab& slab) {
  return slab.held.empty() ? nullptr : slab.held.front()->label.name;
}

}  // namespace spool
