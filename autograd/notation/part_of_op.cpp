#include "spool/autograd/notation/part_of_op.h"

namespace spool {

Place Place::of_part(const PartOfIndex& p, int64_t leading_of_p) const {
  Place inner{.node = node, .parts = {p}, .leading = leading_of_p, .exchange = exchange};
  for (const PartOfIndex& outer : parts) {
    if (outer.index != p.index) {
      inner.parts.push_back(outer);
      continue;
    }
    PartOfIndex& first = inner.parts.front();
    first.range = {outer.range.begin + p.range.begin, outer.range.begin + p.range.end};
    first.extent = outer.extent;
    first.number = outer.number * p.of + p.number;
    first.of = outer.of * p.of;
    if (&outer == parts.begin()) inner.leading = leading;
  }
  return inner;
}

PartOfOp::PartOfOp(std::shared_ptr<const Op> op, const Specs& outputs, const Place& place)
    : op_(std::move(op)), outputs_(outputs), place_(place) {
  const auto* part = op_->place() ? dynamic_cast<const PartOfOp*>(op_.get()) : nullptr;
  if (part) op_ = part->op_;
}

}  // namespace spool
