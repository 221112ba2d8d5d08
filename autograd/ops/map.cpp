#include "spool/autograd/ops/map.h"

#include <algorithm>

namespace spool::map_details {
namespace {

// Index notation of an input that is broadcast like this to a result of this rank.
const char* term_of(Broadcast broadcast, int rank) {
  if (rank < 2) return broadcast == Broadcast::number ? "" : "n";
  switch (broadcast) {
    case Broadcast::row:
      return "c";
    case Broadcast::column:
      return "nK";
    case Broadcast::number:
      return "";
    default:
      return "nc";
  }
}

bool lies_along(const Shape& x, const Shape& y) {
  Broadcast broadcast;
  return fits(x, y, broadcast);
}

// The operand to whose shape all others broadcast, of several the one with the most dimensions; -1:
// there is none.
int find_whole(std::span<const Operand> operands) {
  int whole = -1, rank = -1;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& y = operands[i].shape();
    const auto fits = [&](const Operand& x) { return lies_along(x.shape(), y); };
    if (y.rank() <= rank || !std::ranges::all_of(operands, fits)) continue;
    whole = static_cast<int>(i);
    rank = y.rank();
  }
  return whole;
}

// The shape with the most dimensions and, among those, the most elements.
const Shape& largest(std::span<const Operand> operands) {
  const auto size = [](const Operand& x) { return std::pair(x.shape().rank(), x.shape().numel()); };
  return std::ranges::max_element(operands, {}, size)->shape();
}

void check_types(const char* name, std::span<const Operand> operands) {
  const DType type = operands.front().spec().dtype;
  for (const Operand& x : operands) {
    check(x.spec().dtype == type, name, ": ", in_words(operands),
          " are of several types; convert them to one (Cast)");
  }
  check(type == DType::f32 || type == DType::bf16 || type == DType::f64, name, ": ",
        operands.front().spec(), " is not of a type that is computed in: f32, bf16 or f64");
}

}  // namespace

MapBase::MapBase(const char* name, std::span<const Operand> operands)
    : inputs_(static_cast<int>(operands.size())) {
  check_types(name, operands);
  whole_ = find_whole(operands);
  if (whole_ < 0) {
    const Shape& y = largest(operands);
    const Shape column = y.rank() ? y.with(-1, 1) : y;
    fail(ErrorKind::invalid, name, ": ", in_words(operands), " do not broadcast; beside ", y,
         " an operand can be ", y, ", a row ", Shape{y.row()}, ", a number for each row ", column,
         ", or one number (1); see reshape");
  }
  const Shape& y = operands[static_cast<size_t>(whole_)].shape();
  for (size_t i = 0; i < operands.size(); ++i) {
    fits(operands[i].shape(), y, broadcasts_[i]);
    if (i > 0) notation_ += ',';
    notation_ += term_of(broadcasts_[i], y.rank());
  }
  notation_ += "->";
  notation_ += term_of(Broadcast::none, y.rank());
}

Specs MapBase::infer(const Specs& in) const { return {in[whole_]}; }

Slots MapBase::read_slots(const Needs& needs, std::span<const uint32_t> reads) const {
  uint32_t read = 0;
  for (int k = 0; k < inputs_; ++k) {
    if (needs[k]) read |= reads[static_cast<size_t>(k)];
  }
  Slots slots;
  for (int s = 0; s <= inputs_; ++s) {
    if (read >> s & 1) slots.push_back(s < inputs_ ? in(s) : out(0));
  }
  return slots;
}

MapBase::Parts MapBase::parts(Backward& b, std::span<const uint32_t> reads, uint32_t passes) const {
  Parts all{.broadcasts = broadcasts_};
  Needs needs;
  for (int k = 0; k < inputs_; ++k) {
    if (b.needs_grad(k)) needs.set(k);
  }
  int next = 0;
  for (const Slot slot : read_slots(needs, reads)) {
    all.slots[static_cast<size_t>(slot.output ? inputs_ : slot.index)] = b.saved_at(next++);
  }
  // First what is passed: then dy's memory is not free to take over.
  const auto is_passed = [&](int k) {
    return (passes >> k & 1) && broadcasts_[static_cast<size_t>(k)] == Broadcast::none;
  };
  for (int k = 0; k < inputs_; ++k) {
    if (needs[k] && is_passed(k)) b.pass(k);
  }
  all.dy = b.grad_output(0);
  bool has_taken_over = false;
  for (int k = 0; k < inputs_; ++k) {
    if (!needs[k] || is_passed(k)) continue;
    const bool is_whole = broadcasts_[static_cast<size_t>(k)] == Broadcast::none;
    const bool over = is_whole && !has_taken_over;
    has_taken_over |= over;
    all.dx[static_cast<size_t>(k)] = over ? b.grad_input_over(k, 0) : b.grad_input(k);
    all.any = true;
  }
  return all;
}

}  // namespace spool::map_details
