#include "spool/runtime/memory/layout.h"

#include <utility>

#include "spool/runtime/memory/arena_block.h"

namespace spool {
namespace {

constexpr const char* advice =
    "; a step must allocate as its rehearsal did: rehearse the same work and place it anew";

bool same(const Label& a, const Label& b) { return a.purpose == b.purpose && a.name == b.name; }

std::string describe(const Lifetime& l) {
  return sentence(l.label.name, " (", name(l.label.purpose), "), ", l.bytes, " bytes");
}

}  // namespace

PlacedStep::PlacedStep(Arena& arena, const std::optional<Layout>& layout)
    : arena_(arena), layout_(layout ? &*layout : nullptr) {
  if (!layout_) return;
  check(!arena.placed_step(), "layout: the arena has a placed step already");
  frame_ = arena.open_frame(layout_->bytes);
  arena.set_placed_step(this);
}

PlacedStep::~PlacedStep() {
  if (!frame_) return;
  arena_.set_placed_step(nullptr);
  arena_.close(frame_);
}

void PlacedStep::finish() {
  if (!frame_) return;
  check_complete();
  if (!frame_->placed.empty()) {
    fail(ErrorKind::invalid, "layout: ", frame_->placed.front()->label.name,
         " is still live when the step ends", advice);
  }
  arena_.set_placed_step(nullptr);
  arena_.close(std::exchange(frame_, nullptr));
}

void PlacedStep::begin_phase(size_t phase) {
  check_complete();
  begun_ = true;
  const std::vector<Lifetimes::Phase>& phases = layout_->lifetimes.phases;
  current_ = phase < phases.size() ? phases[phase] : Lifetimes::Phase{};
  position_ = {.phase = phase, .next = current_.begin};
}

std::string PlacedStep::position_in_words() const {
  return sentence("layout: allocation ", position_.next - current_.begin, " of phase ",
                  position_.phase);
}

void PlacedStep::check_complete() const {
  if (position_.next == current_.end) return;
  fail(ErrorKind::invalid, position_in_words(), " was ",
       describe(layout_->lifetimes.all[position_.next]),
       ", when it was rehearsed, and the phase ends without it", advice);
}

PlacedStep::Position PlacedStep::position() {
  if (!begun_) begin_phase(0);
  return position_;
}

Arena::Block* PlacedStep::place(size_t bytes, const Spec& spec, const Label& label) {
  const size_t next = position().next, within = offset(bytes, spec, label);
  const size_t in_arena = frame_->whole->offset + within;
  if (const Arena::Block* live = frame_->overlapping(in_arena, bytes)) {
    fail(ErrorKind::invalid, position_in_words(), ", ", label.name, " (", spec, "), overlaps ",
         live->label.name, " (", live->spec, "), which the rehearsal had freed by then", advice);
  }
  position_.next = next + 1;
  return arena_.place(*frame_, in_arena, bytes);
}

size_t PlacedStep::offset(size_t bytes, const Spec& spec, const Label& label) const {
  const Lifetime found{.bytes = bytes, .label = label};
  if (position_.next == current_.end) {
    fail(ErrorKind::invalid, position_in_words(), " is ", describe(found), " (", spec,
         "), one more than were rehearsed", advice);
  }
  const Lifetime& wanted = layout_->lifetimes.all[position_.next];
  if (wanted.bytes != bytes || !same(wanted.label, label)) {
    fail(ErrorKind::invalid, position_in_words(), " is ", describe(found), " (", spec,
         "), and was ", describe(wanted), ", when it was rehearsed", advice);
  }
  return layout_->offsets[position_.next];
}

}  // namespace spool
