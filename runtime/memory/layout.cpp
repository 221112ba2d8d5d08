#include "spool/runtime/memory/layout.h"

#include <cstring>
#include <utility>

namespace spool {
namespace {

constexpr const char* advice =
    "; a step must do what its rehearsal did: lay it out from one that does the same";

bool same(const Label& a, const Label& b) {
  return a.purpose == b.purpose && (a.name == b.name || std::strcmp(a.name, b.name) == 0);
}

std::string describe(const Lifetime& l) {
  return sentence(l.label.name, " (", name(l.label.purpose), "), ", l.bytes, " bytes");
}

}  // namespace

// ---------------------------------------------------------------------------------- recording

LifetimeRecorder::LifetimeRecorder(Arena& arena) : arena_(arena) {
  check(!arena.recorder_, "layout: the arena is being recorded already");
  arena.recorder_ = this;
}

LifetimeRecorder::~LifetimeRecorder() {
  if (arena_.recorder_ == this) arena_.recorder_ = nullptr;
}

Lifetimes LifetimeRecorder::finish() {
  arena_.recorder_ = nullptr;
  for (const Lifetime& l : seen_.all) {
    check(l.death > 0, "layout: ", describe(l),
          ", is still held when the recording ends, and only ",
          "what is let go in the step can be laid out; allocate it before");
  }
  return std::move(seen_);
}

void LifetimeRecorder::begin_phase(size_t phase) {
  std::vector<Lifetimes::Phase>& phases = seen_.phases;
  const size_t now = seen_.all.size();
  if (phase >= phases.size()) phases.resize(phase + 1);
  check(phases[phase].end == 0, "layout: phase ", phase, " was recorded before");
  phases[phase] = {.begin = now, .end = now};
  phase_ = phase;
}

void LifetimeRecorder::begin(const Arena::Block* block, size_t bytes, const Label& label) {
  if (seen_.phases.empty()) begin_phase(0);
  held_[block] = seen_.all.size();
  seen_.all.push_back({.bytes = bytes, .label = label, .birth = now_++});
  seen_.phases[phase_].end = seen_.all.size();
}

void LifetimeRecorder::end(const Arena::Block* block) {
  const auto at = held_.find(block);
  if (at == held_.end()) return;
  seen_.all[at->second].death = now_++;
  held_.erase(at);
}

// ------------------------------------------------------------------------------------- replay

PlacedStep::PlacedStep(Arena& arena, const std::optional<Layout>& layout)
    : arena_(arena), layout_(layout ? &*layout : nullptr) {
  if (!layout_) return;
  check(!arena.placed_step_, "layout: the arena replays one already");
  slab_ = arena.open_slab(layout_->bytes);
  arena.placed_step_ = this;
}

PlacedStep::~PlacedStep() {
  if (!slab_) return;
  arena_.placed_step_ = nullptr;
  arena_.close(slab_);
}

void PlacedStep::finish() {
  if (!slab_) return;
  check_complete();
  if (const char* held = Arena::name_of_held(*slab_)) {
    fail(ErrorKind::invalid, "layout: ", held, " is still held when the step ends", advice);
  }
  arena_.placed_step_ = nullptr;
  arena_.close(std::exchange(slab_, nullptr));
}

void PlacedStep::begin_phase(size_t phase) {
  check_complete();
  begun_ = true;
  const std::vector<Lifetimes::Phase>& phases = layout_->lifetimes.phases;
  within_ = phase < phases.size() ? phases[phase] : Lifetimes::Phase{};
  next_ = within_.begin;
  phase_ = phase;
}

std::string PlacedStep::position() const {
  return sentence("layout: allocation ", next_ - within_.begin, " of phase ", phase_);
}

void PlacedStep::check_complete() const {
  if (next_ == within_.end) return;
  fail(ErrorKind::invalid, position(), " was ", describe(layout_->lifetimes.all[next_]),
       ", and the phase ends without it", advice);
}

void PlacedStep::refuse(const char* asked, const Spec& spec, const char* held,
                        const Spec& held_spec) const {
  fail(ErrorKind::invalid, position(), ", ", asked, " (", spec, "), goes where ", held, " (",
       held_spec, ") lies, which the rehearsal had let go by then", advice);
}

size_t PlacedStep::offset(size_t bytes, const Spec& spec, const Label& label) {
  if (!begun_) begin_phase(0);
  const Lifetime found{.bytes = bytes, .label = label};
  if (next_ == within_.end) {
    fail(ErrorKind::invalid, position(), " is ", describe(found), " (", spec,
         "), one more than were rehearsed", advice);
  }
  const Lifetime& wanted = layout_->lifetimes.all[next_];
  if (wanted.bytes != bytes || !same(wanted.label, label)) {
    fail(ErrorKind::invalid, position(), " is ", describe(found), " (", spec, "), and was ",
         describe(wanted), ", when it was rehearsed", advice);
  }
  return layout_->offsets[next_];
}

}  // namespace spool
