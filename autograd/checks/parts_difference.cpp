// Compares an op in parts along an index with the whole.

#include <algorithm>
#include <cmath>

#include "spool/autograd/checks/applied_op.h"
#include "spool/autograd/checks/part_exchange.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/numbers.h"
#include "spool/runtime/random.h"

namespace spool::op_checks {
namespace {

Shape shape_of(const std::vector<int64_t>& extents) {
  check(!extents.empty() && extents.size() <= 3, "rows of a tensor of rank ", extents.size());
  if (extents.size() == 1) return {extents[0]};
  if (extents.size() == 2) return {extents[0], extents[1]};
  return {extents[0], extents[1], extents[2]};
}

// Calls visit(begin in the whole, begin in the part, count) for each run of elements of the part.
template <class Visit>
void for_each_run(const Around& whole, Range range, Visit visit) {
  int64_t from = 0, first = 0;
  for (int64_t b = 0; b < whole.before; ++b) {
    for (const int64_t units : whole.parts) {
      const int64_t count = range.size() * units * whole.after;
      visit(first + range.begin * units * whole.after, from, count);
      from += count;
      first += whole.extent * units * whole.after;
    }
  }
}

// Cuts one op along one index.
class OpInParts {
 public:
  OpInParts(const AppliedOp& applied, const Cutting& how)
      : applied_(applied), how_(how), specs_(applied.output_specs()) {
    const bool leads = leads_everywhere(applied.notation, how.index);
    for (size_t i = 0; i < applied.inputs.size(); ++i) {
      see(applied.term_of_input(i), applied.inputs[i].spec.shape, leads);
    }
    for (size_t i = 0; i < specs_.size(); ++i) {
      see(applied.notation.output(i), specs_[i].shape, leads);
    }
    const int64_t unit = how.form == PartForm::slices ? max_ : 1;
    ranges_ = split(extent_ / unit, how.parts);
    for (Range& range : ranges_) range = {range.begin * unit, range.end * unit};
  }

  bool carries(const Term& term) const { return term.carries(how_.index); }
  size_t parts() const { return ranges_.size(); }
  bool is_joined() const { return applied_.notation.is_joined(how_.index); }
  // Whether each part adds to the output: what is added to that sum is in the first part alone.
  bool is_summed() const {
    return !applied_.notation.output(0).carries(how_.index) && !is_joined();
  }
  bool is_in_first_part(const Term& term) const {
    return term.is_added && is_summed() && !term.carries(how_.index);
  }
  // The number of the part that has this element of a tensor.
  size_t part_of(int64_t element, const Term& term, const Shape& shape) const {
    const int64_t value = around(how_.index, term, shape).value(element);
    const auto has = [=](Range range) { return value < range.end; };
    return static_cast<size_t>(std::ranges::find_if(ranges_, has) - ranges_.begin());
  }

  OpArguments part(const OpArguments& whole, size_t number, PartExchange& exchange) const {
    OpArguments cut_up{.place = {.node = 0,
                                 .parts = {{how_.index, ranges_[number], extent_,
                                            static_cast<int>(number), static_cast<int>(parts())}},
                                 .leading = leading_,
                                 .exchange = &exchange}};
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      const Term& term = applied_.term_of_input(i);
      cut_up.inputs.push_back(cut(whole.inputs[i], term, ranges_[number]));
      if (number == 0 || !is_in_first_part(term)) continue;
      std::ranges::fill(cut_up.inputs.back().numbers, 0.0);
    }
    for (size_t i = 0; i < specs_.size(); ++i) {
      const Term& term = applied_.notation.output(i);
      cut_up.upstream.push_back(cut(whole.upstream[i], term, ranges_[number]));
      cut_up.outputs.push_back(part(specs_[i], term, ranges_[number]));
    }
    if (how_.form == PartForm::slices) check_inferred(cut_up);
    return cut_up;
  }

  // Copies the part into its place of the whole, or adds it.
  void join(HostTensor& whole, const HostTensor& part, const Term& term, size_t number) const {
    if (part.numbers.empty()) return;  // integers have no gradient
    if (!term.carries(how_.index)) return add(whole, part);
    const Around at = around(how_.index, term, whole.spec.shape);
    const Range range = ranges_[number];
    check(part.spec.shape.numel() ==
              at.before * (at.dimension() / at.extent) * range.size() * at.after,
          applied_.op->name(), ": a part's result is ", part.spec, " of ", whole.spec);
    for_each_run(at, range, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(part.numbers.begin() + from, count, whole.numbers.begin() + to);
    });
  }

 private:
  void see(const Term& term, const Shape& shape, bool leads) {
    if (!term.carries(how_.index)) return;
    extent_ = term.extent(how_.index, shape);
    const bool is_first = term.first() == how_.index && term.is_plain(how_.index);
    if (!is_first || shape.rank() == 0 || shape[0] == 0) return;
    max_ = std::max(max_, extent_ / shape[0]);
    if (leads && leading_ == 0) leading_ = shape[0];
  }

  Spec part(const Spec& whole, const Term& term, Range range) const {
    if (!term.carries(how_.index)) return whole;
    const Shape& shape = whole.shape;
    const auto [first, count] = term.dimensions(how_.index, shape.rank());
    const int64_t units = term.units(how_.index);
    if (count == 1) return {shape.with(first, range.size() * units), whole.dtype};
    if (how_.form == PartForm::slices) {
      const int64_t rows = count ? range.size() * shape[0] / extent_ : 0;
      return {count ? shape.with(0, rows) : shape, whole.dtype};
    }
    std::vector<int64_t> extents{range.size()};
    for (int d = count; d < shape.rank(); ++d) extents.push_back(shape[d]);
    return {shape_of(extents), whole.dtype};
  }

  HostTensor cut(const HostTensor& whole, const Term& term, Range range) const {
    if (whole.numbers.empty() || !term.carries(how_.index)) return whole;
    HostTensor cut_off{part(whole.spec, term, range), {}, whole.constant};
    for_each_run(around(how_.index, term, whole.spec.shape), range,
                 [&](int64_t begin, int64_t, int64_t count) {
                   const auto from = whole.numbers.begin() + begin;
                   cut_off.numbers.insert(cut_off.numbers.end(), from, from + count);
                 });
    return cut_off;
  }

  // A part has the attributes of the whole: infer() has to see in its inputs how much it has.
  void check_inferred(const OpArguments& part) const {
    Specs in;
    for (const size_t i : applied_.operands) in.push_back(part.inputs[i].spec);
    const Specs inferred = applied_.op->infer(in);
    for (size_t i = 0; i < std::min(inferred.size(), part.outputs.size()); ++i) {
      check(inferred[i].shape.numel() == part.outputs[i].shape.numel(), applied_.op->name(),
            ": of a part along ", how_.index, " infer() gives output ", i, " as ", inferred[i],
            ", and it is ", part.outputs[i], "; an attribute must not be an extent");
    }
  }

  void add(HostTensor& whole, const HostTensor& part) const {
    check(part.spec == whole.spec, applied_.op->name(), ": a part's summand is ", part.spec,
          ", not ", whole.spec);
    for (size_t k = 0; k < part.numbers.size(); ++k) whole.numbers[k] += part.numbers[k];
  }

  const AppliedOp& applied_;
  Cutting how_;
  std::vector<Spec> specs_;  // of outputs
  int64_t extent_ = 1;
  int64_t max_ = 1;  // elements of the index in a slice of a tensor's first dimension
  int64_t leading_ = 0;
  std::vector<Range> ranges_ = {};
};

std::vector<HostTensor> random_upstream(const AppliedOp& applied) {
  std::vector<HostTensor> all;
  Random random(900);
  for (const Spec& spec : applied.output_specs()) {
    HostTensor dy{spec, {}};
    const bool root = applied.recording && applied.op->differentiable(static_cast<int>(all.size()));
    if (root) dy.numbers.resize(static_cast<size_t>(spec.shape.numel()));
    for (double& x : dy.numbers) x = random.normal();
    all.push_back(dy);
  }
  return all;
}

// One tensor that the whole computes, and what the parts do.
struct TensorInParts {
  std::string what;  // "output 0"
  const HostTensor& whole;
  std::vector<const HostTensor*> parts;
  const Term& term;
  bool is_whole = false;  // in each part
};

class PartsComparison {
 public:
  explicit PartsComparison(const OpInParts& op) : op_(op) {}

  Apart apart(const TensorInParts& c) const {
    Apart worst;
    if (!c.is_whole) {
      HostTensor joined = c.whole;
      std::ranges::fill(joined.numbers, 0.0);
      for (size_t p = 0; p < c.parts.size(); ++p) op_.join(joined, *c.parts[p], c.term, p);
      worst.most = numbers::difference(joined.numbers, c.whole.numbers);
      worst.where = where(c, joined.numbers);
      return worst;
    }
    for (size_t p = 0; p < c.parts.size(); ++p) {
      const double most = numbers::difference(c.parts[p]->numbers, c.whole.numbers);
      if (p == 0 || !(most <= worst.most)) worst = {most, in_part(c, p)};
      if (std::isnan(most)) break;
    }
    return worst;
  }

 private:
  std::string in_part(const TensorInParts& c, size_t part) const {
    return sentence("part ", part, " of ", op_.parts(), " of ", name(c));
  }
  static std::string name(const TensorInParts& c) {
    return sentence(c.what, ", '", c.term.text(), "' ", c.whole.spec.shape, ",");
  }
  // The part with the number that is furthest apart.
  std::string where(const TensorInParts& c, const std::vector<double>& joined) const {
    size_t furthest = 0;
    double most = -1;
    for (size_t k = 0; k < joined.size(); ++k) {
      const double apart = std::abs(joined[k] - c.whole.numbers[k]);
      if (apart <= most) continue;
      most = apart, furthest = k;
      if (std::isnan(apart)) break;
    }
    const bool is_cut = !joined.empty() && op_.carries(c.term);
    if (!is_cut) return sentence("the sum of the parts of ", name(c));
    return in_part(c, op_.part_of(static_cast<int64_t>(furthest), c.term, c.whole.spec.shape));
  }

  const OpInParts& op_;
};

std::vector<OpResults> run_parts(const OpInParts& op, const AppliedOp& applied,
                                 const OpArguments& whole, Stream& stream) {
  RepeatedExchange exchange(op.parts());
  std::vector<OpResults> results;
  do {
    results.clear();
    exchange.begin_round();
    for (size_t p = 0; p < op.parts(); ++p) {
      exchange.begin_part(p);
      results.push_back(run(applied, op.part(whole, p, exchange), stream));
    }
  } while (exchange.has_changed());
  return results;
}

template <class Pick>
std::vector<const HostTensor*> each(const std::vector<OpResults>& parts, Pick pick) {
  std::vector<const HostTensor*> all;
  for (const OpResults& part : parts) all.push_back(&pick(part));
  return all;
}

}  // namespace

PartsDifference difference_of_parts(const AppliedOp& applied, const Cutting& how) {
  CpuStream stream(op_memory, 1);
  const OpArguments arguments{.inputs = applied.inputs,
                              .upstream = random_upstream(applied),
                              .outputs = applied.output_specs()};
  const OpResults whole = run(applied, arguments, stream);
  const OpInParts op(applied, how);
  const std::vector<OpResults> parts = run_parts(op, applied, arguments, stream);
  const PartsComparison comparing(op);
  PartsDifference found;
  const auto add = [&](Apart& worst, const TensorInParts& c) {
    const Apart apart = comparing.apart(c);
    if (std::isnan(worst.most)) return;
    if (worst.where.empty() || !(apart.most <= worst.most)) worst = apart;
  };
  for (size_t i = 0; i < whole.outputs.size(); ++i) {
    const Term& term = applied.notation.output(i);
    // What is there for backward alone is a part's own where parts join the rest.
    if (op.is_joined() && !applied.op->differentiable(static_cast<int>(i))) continue;
    add(found.outputs, {sentence("output ", i), whole.outputs[i],
                        each(
                            parts, [=](auto& r) -> auto& { return r.outputs[i]; }),
                        term, op.is_joined()});
  }
  for (size_t i = 0; i < whole.inputs.size(); ++i) {
    const Term& term = applied.term_of_input(i);
    if (op.carries(term)) {
      add(found.outputs, {sentence("what forward leaves in input ", i), whole.inputs[i],
                          each(
                              parts, [=](auto& r) -> auto& { return r.inputs[i]; }),
                          term});
    }
    if (whole.gradients.empty() || whole.gradients[i].numbers.empty()) continue;
    add(found.gradients, {sentence("the gradient of input ", i), whole.gradients[i],
                          each(
                              parts, [=](auto& r) -> auto& { return r.gradients[i]; }),
                          term, op.is_in_first_part(term)});
  }
  return found;
}

}  // namespace spool::op_checks
