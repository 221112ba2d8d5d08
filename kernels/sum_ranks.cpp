#include "spool/kernels/sum_ranks.h"

#include <algorithm>

#include "spool/kernels/arguments.h"

namespace spool {
namespace {

// The elements of a slice in the piece that a rank sent.
View term(const void* piece, const SumRanks::Entry& e, DType sent) {
  const auto at = static_cast<size_t>(e.at) * size_of(sent);
  return {static_cast<std::byte*>(const_cast<void*>(piece)) + at, {e.out.view.shape(), sent}};
}

void check_slice(const SumRanks& k, const SumRanks::Entry& e) {
  const Arguments all(SumRanks::name);
  const View& out = e.out.view;
  all.present("out", out, k.sent ? gradient_of(*k.sent) : Types(DType::f32) | DType::f64);
  const DType sent = k.type_sent(e);
  all.elements("own", e.own, sent == DType::f32 ? sent | Types(DType::bf16) : sent, out.numel());
  all.same_or_apart("out", out, "own", e.own);
  check(e.at >= 0, SumRanks::name, ": a slice begins at element ", e.at,
        " of the pieces; it must not begin before them");
  for (const void* piece : k.pieces) {
    if (piece) all.apart("out", out, {{"what a rank sent", term(piece, e, sent)}});
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
  const DType type = sent.value_or(DType::f32);
  check(floating.has(type), name, ": elements of ", spool::name(type),
        " cannot add up; f64, f32 and bf16 can");
  for (const Entry& e : slices) check_slice(*this, e);
}

Cost SumRanks::cost() const {
  Cost sum;
  for (const Entry& e : slices) {
    const DType type = type_sent(e);
    const auto n = static_cast<double>(e.own.numel());
    sum.flops += n * (e.out.accumulate ? ranks() : ranks() - 1);
    sum.bytes += bytes(e.out, e.own) + (ranks() - 1) * n * static_cast<double>(size_of(type));
    sum.dtype = accumulator(type);
  }
  return sum;
}

}  // namespace spool
