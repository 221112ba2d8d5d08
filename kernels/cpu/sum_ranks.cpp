#include "spool/kernels/sum_ranks.h"

#include <algorithm>

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/pieces.h"

namespace spool {
namespace {

// total[i] += x[i] for n elements.
template <class A, class T>
void add_term(A* total, const T* x, int64_t n) {
  cpu::put_all(n, cpu::Sink<A, true>{total}, [=](int64_t i) { return A(x[i]); });
}

// The sum of elements [begin, end) of a slice, whose own term is of type T.
template <class A, class T>
void sum_terms(const SumRanks& k, const SumRanks::Entry& e, int64_t begin, int64_t end) {
  constexpr int64_t block = 1024;  // elements whose sums stay in the first cache
  A* const out = e.out.view.as<A>();
  for (int64_t at = begin; at < end; at += block) {
    const int64_t n = std::min(block, end - at);
    A total[block];
    if (e.out.accumulate) {
      std::copy_n(out + at, n, total);
    } else {
      std::fill_n(total, n, -A{0});  // -0 + x is x, for any x
    }
    for (const void* piece : k.pieces) {
      if (piece) {
        add_term(total, static_cast<const A*>(piece) + e.at + at, n);
      } else {
        add_term(total, e.own.as<T>() + at, n);
      }
    }
    std::copy_n(total, n, out + at);
  }
}

}  // namespace

void run(const SumRanks& k, CpuStream& stream) {
  cpu::Pieces<decltype(k.slices)::capacity> pieces(cpu::piece_elements);
  for (const auto& e : k.slices) pieces.add(e.own.numel());
  pieces.for_each(stream, [&](size_t slice, int64_t begin, int64_t end, int64_t) {
    const SumRanks::Entry& e = k.slices[slice];
    if (e.own.dtype() == DType::f64) return sum_terms<double, double>(k, e, begin, end);
    if (e.own.dtype() == DType::bf16) return sum_terms<float, bf16>(k, e, begin, end);
    sum_terms<float, float>(k, e, begin, end);
  });
}

}  // namespace spool
