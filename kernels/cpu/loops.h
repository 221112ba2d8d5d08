#pragma once

// The loops of the cpu kernels.  The pieces of a loop depend only on its extents, so results do not
// depend on the number of threads.  A loop of one piece wakes no other thread.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "spool/kernels/cpu/fold.h"
#include "spool/kernels/cpu/scalar.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {

// Elements in a piece: a few microseconds of work.
constexpr int64_t piece_elements = 16384;

// Rows of C elements in a piece.
inline int64_t piece_rows(int64_t C) {
  return std::max<int64_t>(1, piece_elements / std::max<int64_t>(1, C));
}

// Destination of results of type G, which are stored or added to what is there.
template <class G, bool add>
struct Sink {
  static constexpr bool accumulates = add;
  G* to;

  template <class X>
  void put(int64_t i, X value) const {
    using A = accumulator_t<X>;
    if constexpr (add) {
      to[i] = static_cast<G>(static_cast<A>(value) + static_cast<A>(to[i]));
    } else {
      to[i] = static_cast<G>(value);
    }
  }
  Sink at(int64_t offset) const { return {to + offset}; }
};

// Two results of one i, and where each goes.
template <class A>
struct Two {
  A first, second;
};
template <class Out>
struct TwoSinks {
  Out first, second;

  template <class A>
  [[gnu::always_inline]] void put(int64_t i, Two<A> value) const {
    first.put(i, value.first);
    second.put(i, value.second);
  }
};

template <class T>
Sink<T, false> plain(const View& v) {
  return {v.as<T>()};
}

// Calls f with the Sink of a gradient; T is the type of the values.
template <class T, class F>
void dispatch_sink(const Grad& g, F&& f) {
  dispatch_gradient<T>(g.view.dtype(), [&](auto scalar) {
    using G = decltype(scalar);
    if (g.accumulate) return f(Sink<G, true>{g.view.as<G>()});
    f(Sink<G, false>{g.view.as<G>()});
  });
}

// out[i] (+)= f(i) for i in [begin, end), on this thread.
template <class Out, class F>
void put_range(int64_t begin, int64_t end, Out out, F f) {
  // clang warns about the library's functions in f64, which it cannot vectorise.
  using Result = decltype(f(begin));
  [[maybe_unused]] constexpr bool vectorise =
      !std::is_same_v<Result, double> && !std::is_same_v<Result, Two<double>>;
#if !defined(__CUDACC__)  // nvcc has no such flag for the host's compiler, which would warn
#pragma omp simd if (vectorise)
#endif
  for (int64_t i = begin; i < end; ++i) out.put(i, f(i));
}
template <class Out, class F>
void put_all(int64_t n, const Out& out, const F& f) {
  put_range(0, n, out, f);
}

// out[i] (+)= f(i) for i in [0, n), shared by the threads.
template <class Out, class F>
void map(CpuStream& stream, int64_t n, const Out& out, const F& f) {
  stream.parallel_for(n, piece_elements,
                      [&](int64_t begin, int64_t end) { put_range(begin, end, out, f); });
}

// Division of a sum over N rows of C columns into pieces of rows, each with a partial sum; these
// are then added up in order.
struct RowPieces {
  static constexpr int64_t max_pieces = 32;
  int64_t rows = 1, count = 0;

  RowPieces(int64_t N, int64_t C)
      : rows(std::max(ceil_div(N, max_pieces), piece_rows(C))), count(ceil_div(N, rows)) {}
};

// out[c] (+)= sum over the pieces of partials[piece * stride + c]; overwrites the first piece.
template <class A, class Out>
void add_pieces(CpuStream& stream, A* partials, int64_t stride, int64_t count, int64_t C,
                const Out& out) {
  const int64_t grain = piece_rows(count);
  stream.parallel_for(C, std::max<int64_t>(grain, 64), [&](int64_t begin, int64_t end) {
    const Sink<A, true> total{partials + begin};
    for (int64_t piece = 1; piece < count; ++piece) {
      const A* partial = total.to + piece * stride;
      put_all(end - begin, total, [=](int64_t c) { return partial[c]; });
    }
    put_all(end - begin, out.at(begin), [=](int64_t c) { return count ? total.to[c] : A{0}; });
  });
}

}  // namespace spool::cpu
