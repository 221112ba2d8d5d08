#include "spool/autograd/sharding/refusals.h"

#include <algorithm>
#include <vector>

#include "spool/runtime/check.h"

namespace spool {
namespace {

// "1, 2, 4 or 8", with the word between the last two.
template <class T>
std::string list_of(const std::vector<T>& all, const char* word) {
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) text += i + 1 == all.size() ? sentence(' ', word, ' ') : ", ";
    text += std::to_string(all[i]);
  }
  return text;
}

// "; 1, 2 or 4 would": the greatest numbers below n that divide an extent.
std::string would_divide(int64_t extent, int64_t n) {
  constexpr size_t max_named = 8;
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i <= extent / i; ++i) {
    if (extent % i != 0) continue;
    for (const int64_t divisor : {i, extent / i}) {
      if (divisor < n) divisors.push_back(divisor);
    }
  }
  std::ranges::sort(divisors);
  divisors.erase(std::unique(divisors.begin(), divisors.end()), divisors.end());
  if (divisors.size() > max_named) divisors.erase(divisors.begin(), divisors.end() - max_named);
  if (divisors == std::vector<int64_t>{1}) return "; only 1 would";
  return sentence("; ", list_of(divisors, "or"), " would");
}

// "its dimension 2 is 6", or what parts and units it has.
std::string dimension_in_words(const WholeValue& value, int dimension) {
  const DimensionParts& d = value.dimensions[static_cast<size_t>(dimension)];
  const int64_t extent = value.spec.shape[dimension];
  if (d.parts.size() > 1) {
    return sentence("its dimension ", dimension, " has parts of ", list_of(d.parts, "and"),
                    ", each of ", d.units, " units");
  }
  if (d.units != extent) {
    return sentence("its dimension ", dimension, " of ", extent, " has ", d.units, " units");
  }
  return sentence("its dimension ", dimension, " is ", extent);
}

char index_of(const Term& term, int dimension, int rank) {
  for (const char c : term.indices) {
    const auto [first, count] = term.dimensions(c, rank);
    if (dimension >= first && dimension < first + count) return c;
  }
  return ' ';
}

std::string why_of_dimension(const WholeOp& op, const WholeOperand& x, int dimension, int64_t n) {
  const int64_t units = x.value.dimensions[static_cast<size_t>(dimension)].units;
  const char index = index_of(x.term, dimension, x.value.spec.shape.rank());
  if (const auto word = op.counted.find(index); word != op.counted.end()) {
    return sentence("the ", units, ' ', word->second, " of ", x.name, " do not divide by ", n,
                    would_divide(units, n));
  }
  return sentence(x.name, ": ", dimension_in_words(x.value, dimension), ", which ", n,
                  " ranks do not divide", would_divide(units, n));
}

std::string why_of_rows(const WholeOp& op, const WholeOperand& x, const JoinedRows& joined,
                        int64_t n) {
  if (joined.dimensions == 1) return why_of_dimension(op, x, 0, n);
  return sentence(x.name, ": its first ", joined.dimensions, " dimensions have ", joined.extent,
                  " rows, which ", n, " ranks do not divide", would_divide(joined.extent, n));
}

}  // namespace

WholeOperand whole_operand(const WholeOp& op, size_t number, bool is_output) {
  const auto& names = is_output ? op.output_names : op.input_names;
  const WholeValue& value = (is_output ? op.outputs : op.inputs)[number];
  const std::string name =
      number < names.size() ? names[number] : sentence(is_output ? "output " : "input ", number);
  return {.term = is_output ? op.notation.output(number) : op.notation.input(number),
          .value = value,
          .is_output = is_output,
          .number = number,
          .name = sentence(name, ' ', value.spec.shape)};
}

int joinable_rows(const Term& term, const WholeValue& value, const CutIndices& axes,
                  const MeshAxes& mesh, Rows rows) {
  if (rows == Rows::each) return 1;
  for (size_t a = 0; a < mesh.size(); ++a) {
    if (axes[a].index == term.first()) {
      return term.dimensions(term.first(), value.spec.shape.rank()).count;
    }
  }
  return 1;
}

std::string why_of_missing_dimension(const WholeOperand& x, const CutIndex& cut) {
  return sentence(x.name, " has no dimension ", int{cut.dimension}, " of the index ", cut.index,
                  ", which another operand has");
}

std::string why_of_integers(const WholeOperand& x, const CutIndex& cut) {
  return sentence(x.name, " lacks the index ", cut.index,
                  ", so parts would be summed, and it is of integers, which are not");
}

std::string why_of_size(const WholeOp& op, const WholeOperand& x, const Sharding& s,
                        const MeshAxes& mesh, int rows) {
  const JoinedRows joined = joined_rows(x.value, s, mesh, rows);
  if (!joined.divides) return why_of_rows(op, x, joined, ways(s, 0, mesh));
  for (int d = 1; d < x.value.spec.shape.rank(); ++d) {
    const int64_t n = ways(s, d, mesh);
    if (x.value.dimensions[static_cast<size_t>(d)].units % n) return why_of_dimension(op, x, d, n);
  }
  return sentence(x.name, " does not divide");
}

namespace {

// The parts of all dimensions that one index cuts.
class PartsOfIndex {
 public:
  PartsOfIndex(const CutIndex& cut) : cut_(cut) {}

  std::string why_not(const WholeOperand& x) {
    if (!x.term.carries(cut_.index)) return {};
    const Shape& shape = x.value.spec.shape;
    const int d = x.term.dimensions(cut_.index, shape.rank()).first + cut_.dimension;
    const auto& parts = x.value.dimensions[static_cast<size_t>(d)].parts;
    if (!x.term.is_plain(cut_.index)) {
      is_packed_ = true;
      const auto asked = asked_parts(x.term, cut_.index, shape);
      if (!asked) return sentence(x.name, " does not divide into the parts of ", x.term.text());
      if (parts != asked->parts) return why_of(x, d, asked->parts, parts);
    } else if (!plain_) {
      plain_ = &parts;
    } else if (parts != *plain_ && (parts.size() > 1 || plain_->size() > 1)) {
      return why_of(x, d, *plain_, parts);
    }
    if (is_packed_ && plain_ && plain_->size() > 1) return why_of(x, d, {}, *plain_);
    return {};
  }

 private:
  std::string why_of(const WholeOperand& x, int dimension, const std::vector<int64_t>& asked,
                     const std::vector<int64_t>& parts) const {
    const std::string here =
        asked.empty() ? std::string("one part") : sentence("parts of ", list_of(asked, "and"));
    return sentence(x.name, ": the index ", cut_.index, " asks for ", here, " along its dimension ",
                    dimension, ", and another op for parts of ", list_of(parts, "and"),
                    "; a dimension is cut in one way");
  }

  CutIndex cut_;
  const std::vector<int64_t>* plain_ = nullptr;
  bool is_packed_ = false;
};

}  // namespace

std::string why_of_parts(const WholeOp& op, const CutIndices& axes, const MeshAxes& mesh) {
  for (size_t a = 0; a < mesh.size(); ++a) {
    PartsOfIndex parts(axes[a]);
    for (const bool is_output : {false, true}) {
      for (size_t i = 0; i < (is_output ? op.outputs : op.inputs).size(); ++i) {
        std::string why = parts.why_not(whole_operand(op, i, is_output));
        if (!why.empty()) return why;
      }
    }
  }
  return {};
}

}  // namespace spool
