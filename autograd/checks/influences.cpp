// Finds which elements of an op's inputs change which of its outputs.

#include <algorithm>
#include <bit>
#include <numeric>
#include <sstream>

#include "spool/autograd/checks/applied_op.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"

namespace spool::op_checks {
namespace {

// An element of an input or an output.
struct Element {
  const Term& term;
  const Shape& shape;
  int64_t number;
};

// The separable indices that both have, at different places.
std::string apart(const Element& a, const Element& b) {
  std::string found;
  const auto value = [](char index, const Element& e) {
    return around(index, e.term, e.shape).value(e.number);
  };
  for (const char c : a.term.indices) {
    if (!is_separable(c) || !b.term.carries(c)) continue;
    if (value(c, a) != value(c, b)) found += c;
  }
  return found;
}

class Influencing {
 public:
  explicit Influencing(const AppliedOp& applied)
      : applied_(applied),
        arguments_{.inputs = applied.inputs, .upstream = {}, .outputs = applied.output_specs()},
        before_(run(applied, arguments_, stream_)) {
    found_.matters.resize(applied.inputs.size());
  }

  Influences find() {
    for (size_t i = 0; i < applied_.inputs.size(); ++i) {
      for (const size_t k : chosen(applied_.inputs[i].numbers.size())) change(i, k);
    }
    return found_;
  }

 private:
  // All elements, or some where there are many.
  static std::vector<size_t> chosen(size_t elements) {
    constexpr size_t max = 40;
    std::vector<size_t> some(std::min(elements, max));
    std::iota(some.begin(), some.end(), size_t{0});
    Random random(7);
    if (elements > max) {
      for (size_t& k : some) k = random.next() % elements;
    }
    return some;
  }

  void change(size_t input, size_t k) {
    HostTensor& x = arguments_.inputs[input];
    const double old = x.numbers[k];
    x.numbers[k] = x.spec.dtype == DType::i32 ? (old == 0 ? 1 : 0) : old + 1;
    const OpResults after = run(applied_, arguments_, stream_);
    x.numbers[k] = old;
    const Term& term = applied_.term_of_input(input);
    const Element changed{term, x.spec.shape, static_cast<int64_t>(k)};
    for (size_t i = 0; i < after.outputs.size(); ++i) {
      const bool any = compare(changed, before_.outputs[i], after.outputs[i],
                               applied_.notation.output(i), "output");
      if (any) found_.matters[input] = true;
    }
    for (size_t i = 0; i < after.inputs.size(); ++i) {
      compare(changed, before_.inputs[i], after.inputs[i], applied_.term_of_input(i), "input");
    }
  }

  // Whether an element of the result differs.
  bool compare(const Element& changed, const HostTensor& before, const HostTensor& after,
               const Term& term, const char* what) {
    const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
    bool any = false;
    for (size_t k = 0; k < before.numbers.size(); ++k) {
      if (bits(before.numbers[k]) == bits(after.numbers[k])) continue;
      any = true;
      if (!found_.forbidden.empty()) continue;
      const Element result{term, before.spec.shape, static_cast<int64_t>(k)};
      const std::string indices = apart(changed, result);
      if (indices.empty()) continue;
      std::ostringstream text;
      text << applied_.op->name() << ": element " << changed.number << " of the input '"
           << changed.term.text() << "' " << changed.shape << " changes element " << k << " of the "
           << what << " '" << term.text() << "' " << before.spec.shape << ", and they differ in "
           << indices;
      found_.forbidden = text.str();
    }
    return any;
  }

  const AppliedOp& applied_;
  CpuStream stream_{op_memory, 1};
  OpArguments arguments_;
  OpResults before_;
  Influences found_;
};

}  // namespace

Influences find_influences(const AppliedOp& applied) { return Influencing(applied).find(); }

}  // namespace spool::op_checks
