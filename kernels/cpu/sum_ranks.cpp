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

// The n elements of `from` as To: where that is another type, converted into `to`.
template <class To, class From>
const To* converted(const From* from, [[maybe_unused]] To* to, [[maybe_unused]] int64_t n) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else {
    cpu::put_all(n, cpu::Sink<To, false>{to}, [=](int64_t i) { return To(from[i]); });
    return to;
  }
}

// The sum of elements [begin, end) of a slice.  G is the type of out, T of its own term, and P of
// the pieces.  A pass adds two more terms.  The last one writes `out`, which may be a term itself,
// unless the sums have another type; or, where `out` need not be read and so is not in the cache,
// its sums go past that.
template <class G, class T, class P>
void sum_terms(const SumRanks& k, const SumRanks::Entry& e, int64_t begin, int64_t end) {
  using A = cpu::accumulator_t<P>;
  constexpr int64_t block = 1024;  // elements whose sums stay in the first cache
  const bool is_read = e.out.accumulate || e.out.view.data() == e.own.data();
  for (int64_t at = begin; at < end; at += block) {
    const int64_t n = std::min(block, end - at);
    G* const out = e.out.view.as<G>() + at;
    A sums[block], one[block], other[block];
    G rounded[block];
    A* last = sums;
    if constexpr (std::is_same_v<A, G>) last = is_read ? out : sums;
    const auto term = [&](int r, A* to) -> const A* {
      if (r >= k.ranks()) return nullptr;
      if (k.pieces[r]) return converted<A>(static_cast<const P*>(k.pieces[r]) + e.at + at, to, n);
      return converted<A>(e.own.as<T>() + at, to, n);
    };
    int r = e.out.accumulate ? 0 : 1;
    const A* sum = e.out.accumulate ? converted<A>(out, sums, n) : term(0, sums);
    do {
      A* const to = r + 2 >= k.ranks() ? last : sums;
      add_three(to, sum, term(r, one), term(r + 1, other), n);
      sum = to;
      r += 2;
    } while (r < k.ranks());
    const G* const result = converted<G>(sum, is_read ? out : rounded, n);
    if (!is_read) cpu::past_cache::copy(out, result, n * int64_t{sizeof(G)});
  }
  cpu::past_cache::fence();
}

}  // namespace

void run(const SumRanks& k, CpuStream& stream) {
  cpu::Pieces<decltype(k.slices)::capacity> pieces(cpu::piece_elements);
  for (const auto& e : k.slices) pieces.add(e.own.numel());
  pieces.for_each(stream, [&](size_t slice, int64_t begin, int64_t end, int64_t) {
    const SumRanks::Entry& e = k.slices[slice];
    const DType own = e.own.dtype(), sent = k.type_sent(e);
    if (own == DType::f64) return sum_terms<double, double, double>(k, e, begin, end);
    if (own == DType::f32) return sum_terms<float, float, float>(k, e, begin, end);
    if (sent == DType::f32) return sum_terms<float, bf16, float>(k, e, begin, end);
    cpu::dispatch_gradient<bf16>(e.out.view.dtype(), [&](auto out) {
      sum_terms<decltype(out), bf16, bf16>(k, e, begin, end);
    });
  });
}

}  // namespace spool
