#include "spool/runtime/memory/layout.h"

#include <utility>

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
  check(!arena.placed_step_, "layout: the arena has a placed step already");
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
  if (const std::optional<Name> live = Arena::name_of_live(*slab_)) {
    fail(ErrorKind::invalid, "layout: ", *live, " is still live when the step ends", advice);
  }
  arena_.placed_step_ = nullptr;
  arena_.close(std::exchange(slab_, nullptr));
}

void PlacedStep::begin_phase(size_t phase) {
  check_complete();
  begun_ = true;
  const std::vector<Lifetimes::Phase>& phases = layout_->lifetimes.phases;
  current_ = phase < phases.size() ? phases[phase] : Lifetimes::Phase{};
  next_ = current_.begin;
  phase_ = phase;
}

std::string PlacedStep::position() const {
  return sentence("layout: allocation ", next_ - current_.begin, " of phase ", phase_);
}

void PlacedStep::check_complete() const {
  if (next_ == current_.end) return;
  fail(ErrorKind::invalid, position(), " was ", describe(layout_->lifetimes.all[next_]),
       ", when it was rehearsed, and the phase ends without it", advice);
}

void PlacedStep::fail_overlap(Name placed, const Spec& spec, Name live,
                              const Spec& live_spec) const {
  fail(ErrorKind::invalid, position(), ", ", placed, " (", spec, "), overlaps ", live, " (",
       live_spec, "), which the rehearsal had freed by then", advice);
}

size_t PlacedStep::next() {
  if (!begun_) begin_phase(0);
  return next_;
}

size_t PlacedStep::offset(size_t bytes, const Spec& spec, const Label& label) {
  (void)next();
  const Lifetime found{.bytes = bytes, .label = label};
  if (next_ == current_.end) {
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
