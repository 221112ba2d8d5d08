// Compares an op in chunks along an index with the whole.

#include <algorithm>
#include <cmath>

#include "spool/autograd/checks/applied_op.h"
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
  const int64_t count = range.size() * whole.after;
  for (int64_t b = 0; b < whole.before; ++b) {
    visit((b * whole.extent + range.begin) * whole.after, b * count, count);
  }
}

// Cuts one op along one index.
class ChunkedOp {
 public:
  ChunkedOp(const AppliedOp& applied, const Chunking& how) : applied_(applied), how_(how) {
    for (size_t i = 0; i < applied.inputs.size(); ++i) {
      see(applied.term_of_input(i), applied.inputs[i].spec.shape);
    }
    for (size_t i = 0; i < applied.output_specs().size(); ++i) {
      see(applied.term_of_output(i), applied.output_specs()[i].shape);
    }
    unit_ = how.form == ChunkForm::slices ? max_ : 1;
  }

  std::vector<Range> ranges() const {
    std::vector<Range> all = split(extent_ / unit_, how_.chunks);
    for (Range& range : all) range = {range.begin * unit_, range.end * unit_};
    return all;
  }

  OpArguments part(const OpArguments& whole, Range range) const {
    OpArguments cut_up;
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      cut_up.inputs.push_back(cut(whole.inputs[i], applied_.term_of_input(i), range));
    }
    for (size_t i = 0; i < whole.upstream.size(); ++i) {
      cut_up.upstream.push_back(cut(whole.upstream[i], applied_.term_of_output(i), range));
    }
    if (leads_everywhere(applied_.notation, how_.index)) cut_up.first_row = range.begin / unit_;
    return cut_up;
  }

  void join(OpResults& whole, const OpResults& part, Range range) const {
    for (size_t i = 0; i < whole.outputs.size(); ++i) {
      join(whole.outputs[i], part.outputs[i], applied_.term_of_output(i), range);
    }
    for (size_t i = 0; i < whole.inputs.size(); ++i) {
      const std::string term = applied_.term_of_input(i);
      if (carries(term, how_.index)) join(whole.inputs[i], part.inputs[i], term, range);
      if (whole.gradients.empty()) continue;
      join(whole.gradients[i], part.gradients[i], term, range);
    }
  }

 private:
  void see(const std::string& term, const Shape& shape) {
    if (!carries(term, how_.index)) return;
    extent_ = around(how_.index, term, shape).extent;
    if (term.front() == how_.index && shape.rank() > 0) max_ = std::max(max_, extent_ / shape[0]);
  }

  Shape shape_of_part(const Shape& whole, const std::string& term, Range range) const {
    const size_t at = term.find(how_.index);
    if (at > 0)
      return whole.with(static_cast<int>(at) - static_cast<int>(term.size()), range.size());
    if (how_.form == ChunkForm::slices) return whole.with(0, range.size() * whole[0] / extent_);
    std::vector<int64_t> each = extents(term, whole);
    if (static_cast<size_t>(whole.rank()) == each.size()) return whole.with(0, range.size());
    each[0] = range.size();
    return shape_of(each);
  }

  HostTensor cut(const HostTensor& whole, const std::string& term, Range range) const {
    if (whole.numbers.empty() || !carries(term, how_.index)) return whole;
    HostTensor part{
        {shape_of_part(whole.spec.shape, term, range), whole.spec.dtype}, {}, whole.constant};
    for_each_run(around(how_.index, term, whole.spec.shape), range,
                 [&](int64_t begin, int64_t, int64_t count) {
                   const auto from = whole.numbers.begin() + begin;
                   part.numbers.insert(part.numbers.end(), from, from + count);
                 });
    return part;
  }

  void join(HostTensor& whole, const HostTensor& part, const std::string& term, Range range) const {
    if (part.numbers.empty()) return;  // integers have no gradient
    if (!carries(term, how_.index)) return add(whole, part);
    const Around at = around(how_.index, term, whole.spec.shape);
    check(part.spec.shape.numel() == at.before * range.size() * at.after, applied_.op->name(),
          ": a chunk's result is ", part.spec, " of ", whole.spec);
    for_each_run(at, range, [&](int64_t to, int64_t from, int64_t count) {
      std::copy_n(part.numbers.begin() + from, count, whole.numbers.begin() + to);
    });
  }

  void add(HostTensor& whole, const HostTensor& part) const {
    check(part.spec == whole.spec, applied_.op->name(), ": a chunk's part of a sum is ", part.spec,
          ", not ", whole.spec);
    for (size_t k = 0; k < part.numbers.size(); ++k) whole.numbers[k] += part.numbers[k];
  }

  const AppliedOp& applied_;
  Chunking how_;
  int64_t extent_ = 1, unit_ = 1;
  int64_t max_ = 1;  // elements of the index in a slice of a tensor's first dimension
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

void clear(std::vector<HostTensor>& all) {
  for (HostTensor& t : all) std::ranges::fill(t.numbers, 0.0);
}

double difference(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = numbers::difference(a[i].numbers, b[i].numbers);
    if (std::isnan(d)) return d;
    worst = std::max(worst, d);
  }
  return worst;
}

// What forward has computed, and the inputs, which it may have written to.
std::vector<HostTensor> written(const OpResults& results) {
  std::vector<HostTensor> all = results.outputs;
  all.insert(all.end(), results.inputs.begin(), results.inputs.end());
  return all;
}

}  // namespace

ChunkDifference difference_of_chunks(const AppliedOp& applied, const Chunking& how) {
  CpuStream stream(op_memory, 1);
  const OpArguments arguments{applied.inputs, random_upstream(applied)};
  const OpResults whole = run(applied, arguments, stream);
  OpResults joined = whole;
  clear(joined.outputs);
  clear(joined.gradients);
  const ChunkedOp chunked(applied, how);
  for (const Range range : chunked.ranges()) {
    chunked.join(joined, run(applied, chunked.part(arguments, range), stream), range);
  }
  return {.outputs = difference(written(joined), written(whole)),
          .gradients = difference(joined.gradients, whole.gradients)};
}

}  // namespace spool::op_checks
