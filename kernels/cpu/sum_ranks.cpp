#include "spool/kernels/sum_ranks.h"

#include <algorithm>
#include <type_traits>

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/past_cache.h"
#include "spool/kernels/cpu/pieces.h"

namespace spool {
namespace {

// to[i] = (x[i] + y[i]) + z[i] for n elements; z, or y and z, may be null, and `to` one of them.
template <class A>
void add_three(A* to, const A* x, const A* y, const A* z, int64_t n) {
  const cpu::Sink<A, false> out{to};
  if (z) return cpu::put_all(n, out, [=](int64_t i) { return x[i] + y[i] + z[i]; });
  if (y) return cpu::put_all(n, out, [=](int64_t i) { return x[i] + y[i]; });
  if (x != to) std::copy_n(x, n, to);
}

// The sum of elements [begin, end) of a slice, whose own term is of type T.  A pass adds two more
// terms.  The last one writes `out`, which may be a term itself; or, where `out` need not be read
// and so is not in the cache, its sums go past that.
template <class A, class T>
void sum_terms(const SumRanks& k, const SumRanks::Entry& e, int64_t begin, int64_t end) {
  constexpr int64_t block = 1024;  // elements whose sums stay in the first cache
  const bool is_read = e.out.accumulate || e.out.view.data() == e.own.data();
  for (int64_t at = begin; at < end; at += block) {
    const int64_t n = std::min(block, end - at);
    A* const out = e.out.view.as<A>() + at;
    A sums[block], own[block];
    const auto term = [&](int r) -> const A* {
      if (r >= k.ranks()) return nullptr;
      if (k.pieces[r]) return static_cast<const A*>(k.pieces[r]) + e.at + at;
      const T* const x = e.own.as<T>() + at;
      if constexpr (std::is_same_v<A, T>) {
        return x;
      } else {
        cpu::put_all(n, cpu::Sink<A, false>{own}, [=](int64_t i) { return A(x[i]); });
        return own;
      }
    };
    int r = e.out.accumulate ? 0 : 1;
    const A* sum = e.out.accumulate ? out : term(0);
    do {
      A* const to = is_read && r + 2 >= k.ranks() ? out : sums;
      add_three(to, sum, term(r), term(r + 1), n);
      sum = to;
      r += 2;
    } while (r < k.ranks());
    if (!is_read) cpu::past_cache::copy(out, sums, n * int64_t{sizeof(A)});
  }
  cpu::past_cache::fence();
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
