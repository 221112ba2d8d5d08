#include "spool/kernels/sum_ranks.h"

#include <algorithm>

#include "spool/kernels/arguments.h"

namespace spool {
namespace {

// The elements of a slice in the piece that a rank sent.
View term(const void* piece, const SumRanks::Entry& e) {
  const Spec& spec = e.out.view.spec();
  const auto at = static_cast<size_t>(e.at) * size_of(spec.dtype);
  return {static_cast<std::byte*>(const_cast<void*>(piece)) + at, spec};
}

void check_slice(const SumRanks& k, const SumRanks::Entry& e) {
  const Arguments all(SumRanks::name);
  const View& out = e.out.view;
  all.present("out", out, Types(DType::f32) | DType::f64);
  const Types of_own = out.dtype() == DType::f32 ? DType::f32 | Types(DType::bf16) : DType::f64;
  all.elements("own", e.own, of_own, out.numel());
  all.same_or_apart("out", out, "own", e.own);
  check(e.at >= 0, SumRanks::name, ": a slice begins at element ", e.at,
        " of the pieces; it must not begin before them");
  for (const void* piece : k.pieces) {
    if (piece) all.apart("out", out, {{"what a rank sent", term(piece, e)}});
  }
}

}  // namespace

void SumRanks::check_ranks(int64_t ranks) {
  check(ranks >= 1 && ranks <= max_ranks, name, ": ", ranks, " ranks cannot add up; 1 to ",
        max_ranks, " can");
}

void SumRanks::check_arguments() const {
  check_ranks(ranks());
  const auto own = std::count(pieces.begin(), pieces.end(), nullptr);
  check(own == 1, name, ": ", own, " of ", ranks(),
        " ranks sent no piece; this rank alone must not");
  for (const Entry& e : slices) check_slice(*this, e);
}

Cost SumRanks::cost() const {
  Cost sum;
  for (const Entry& e : slices) {
    const View& out = e.out.view;
    sum.flops += static_cast<double>(out.numel()) * (e.out.accumulate ? ranks() : ranks() - 1);
    sum.bytes += bytes(e.out, e.own) + (ranks() - 1) * bytes(out);
    sum.dtype = out.dtype();
  }
  return sum;
}

}  // namespace spool
