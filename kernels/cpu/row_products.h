#pragma once

// Products of a few rows a with many rows b, each of which is read from memory once:
//   out[m,r] = sum_k a[m,k] b[r,k]
// The terms of a sum are spread over the lanes of vectors, in an order that depends only on K.

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "spool/kernels/cpu/scalar.h"
#include "spool/kernels/cpu/vector.h"

namespace spool::cpu {

// A vector's worth of T, converted to vectors of their accumulator type.
template <class T>
struct Chunk {
  using S = accumulator_t<T>;
  using V = typename Vector<S>::type;
  static constexpr int64_t size = vector_bytes / static_cast<int64_t>(sizeof(T));
  static constexpr int parts = static_cast<int>(size / Vector<S>::lanes);
  V part[parts];

  static Chunk load(const T* from) {
    Chunk c;
    std::memcpy(&c.part, from, sizeof c.part);
    return c;
  }
  // The first `count` elements, then zeros.
  static Chunk load(const T* from, int64_t count) {
    T padded[size] = {};
    std::copy_n(from, count, padded);
    return load(padded);
  }
  // Element i in the order of memory.
  S at(int64_t i) const { return part[i % parts][i / parts]; }
};

// The elements at even places, then those at odd places: each conversion is one instruction.
template <>
inline Chunk<bf16> Chunk<bf16>::load(const bf16* from) {
  static_assert(std::endian::native == std::endian::little);
  Vector<uint32_t>::type pairs;
  std::memcpy(&pairs, from, sizeof pairs);
  return {{reinterpret_cast<V>(pairs << 16), reinterpret_cast<V>(pairs & 0xffff0000u)}};
}

// The sums over the lanes of each of `count` vectors, a power of two.  Lane j of the result has the
// sum of vector j % count.
template <class S, size_t count, size_t step = 1>
typename Vector<S>::type sum_lanes(typename Vector<S>::type* all) {
  static_assert(count <= Vector<S>::lanes);
  if constexpr (step == Vector<S>::lanes) {
    return all[0];
  } else {
    constexpr size_t half = count > 1 ? count / 2 : 1;
    for (size_t i = 0; i < half; ++i) {
      typename Vector<S>::type a = all[i * count / half], b = all[(i + 1) * count / half - 1];
      trade<S, step>(a, b);
      all[i] = a + b;
    }
    return sum_lanes<S, half, 2 * step>(all);
  }
}

// Products of one row of b with `few` rows of a, summed over k but not over lanes.  Chunks are read
// in the order of memory, but several sums are formed at a time to hide the latency of additions.
template <class T, int few>
[[gnu::always_inline]] inline void multiply_row(const T* a, int64_t a_row, const T* b, int64_t K,
                                                typename Chunk<T>::V (&sums)[few]) {
  using C = Chunk<T>;
  constexpr int vectors = few > 4 ? 2 : 4;  // of sums of a row, as far as there are registers
  constexpr int side = std::max(1, vectors / C::parts);
  typename C::V partial[side][C::parts][few] = {};
  const auto add = [&](int s, int64_t k, auto... count) SPOOL_INLINE {
    const C right = C::load(b + k, count...);
    unrolled<few>([&](int m) SPOOL_INLINE {
      const C left = C::load(a + m * a_row + k, count...);
      unrolled<C::parts>([&](int i)
                             SPOOL_INLINE { partial[s][i][m] += left.part[i] * right.part[i]; });
    });
  };
  int64_t k = 0;
  for (; k + side * C::size <= K; k += side * C::size) {
    unrolled<side>([&](int s) SPOOL_INLINE { add(s, k + s * C::size); });
  }
  for (; k + C::size <= K; k += C::size) add(0, k);
  if (k < K) add(0, k, K - k);
  unrolled<few>([&](int m) SPOOL_INLINE {
    sums[m] = partial[0][0][m];
    unrolled<side * C::parts - 1>(
        [&](int i) SPOOL_INLINE { sums[m] += partial[(i + 1) / C::parts][(i + 1) % C::parts][m]; });
  });
}

#if defined(__AVX512BF16__)
// With many rows arithmetic, not memory, limits the speed: two products an instruction and lane.
template <int few>
[[gnu::always_inline]] inline void multiply_row_in_pairs(
    const bf16* a, int64_t a_row, const bf16* b, int64_t K,
    typename Vector<float>::type (&sums)[few]) {
  constexpr int64_t size = Chunk<bf16>::size;
  __m512 partial[few] = {};
  const auto add = [&](int64_t k, int64_t count) SPOOL_INLINE {
    const auto mask = static_cast<__mmask32>(count < size ? (uint32_t{1} << count) - 1 : ~0u);
    const auto load = [&](const bf16* from)
                          SPOOL_INLINE { return (__m512bh)(_mm512_maskz_loadu_epi16(mask, from)); };
    const __m512bh right = load(b + k);
    unrolled<few>([&](int m) SPOOL_INLINE {
      partial[m] = _mm512_dpbf16_ps(partial[m], load(a + m * a_row + k), right);
    });
  };
  int64_t k = 0;
  for (; k + size <= K; k += size) add(k, size);
  if (k < K) add(k, K - k);
  unrolled<few>([&](int m) SPOOL_INLINE { std::memcpy(&sums[m], &partial[m], sizeof sums[m]); });
}
#endif

// Products of `few` rows of a with `rows` rows of b, a power of two.  The first `rows` lanes of the
// vector in out(m, sums) are the products of row m.
template <class T, int few, int rows, class Out>
[[gnu::always_inline]] inline void multiply_rows(const T* a, int64_t a_row, const T* b,
                                                 int64_t b_row, int64_t K, Out&& out) {
  using S = accumulator_t<T>;
  using V = typename Vector<S>::type;
  V sums[few][rows];
  for (int r = 0; r < rows; ++r) {
    V one[few];
#if defined(__AVX512BF16__)
    if constexpr (std::is_same_v<T, bf16> && (few > 4)) {
      multiply_row_in_pairs<few>(a, a_row, b + r * b_row, K, one);
    } else
#endif
      multiply_row<T, few>(a, a_row, b + r * b_row, K, one);
    unrolled<few>([&](int m) SPOOL_INLINE { sums[m][r] = one[m]; });
  }
  unrolled<few>([&](int m) SPOOL_INLINE { out(m, sum_lanes<S, rows>(sums[m])); });
}

// out[d] = sum_r factor[r] b[r,d] for the first chunks * size columns of `rows` rows of b, which
// are read one after the other; calls out(i, sum) for column i.
template <class T, int chunks, class Out, class... Count>
[[gnu::always_inline]] inline void add_columns(const accumulator_t<T>* factor, const T* b,
                                               int64_t b_row, int64_t rows, Out&& out,
                                               Count... count) {
  using C = Chunk<T>;
  C sums[chunks] = {};
  for (int64_t r = 0; r < rows; ++r) {
    unrolled<chunks>([&](int c) SPOOL_INLINE {
      const C right = C::load(b + r * b_row + c * C::size, count...);
      unrolled<C::parts>([&](int i) SPOOL_INLINE { sums[c].part[i] += factor[r] * right.part[i]; });
    });
  }
  const int64_t columns = std::min({chunks * C::size, int64_t{count}...});
  for (int64_t i = 0; i < columns; ++i) out(i, sums[i / C::size].at(i % C::size));
}

// out(d, sum_r factor[r] b[r,d]) for all D columns.
template <class T, class Out>
void add_rows(const accumulator_t<T>* factor, const T* b, int64_t b_row, int64_t rows, int64_t D,
              const Out& out) {
  using C = Chunk<T>;
  constexpr int side = 4 / C::parts;
  int64_t d = 0;
  const auto put = [&](int64_t i, accumulator_t<T> sum) { out(d + i, sum); };
  for (; d + side * C::size <= D; d += side * C::size) {
    add_columns<T, side>(factor, b + d, b_row, rows, put);
  }
  for (; d + C::size <= D; d += C::size) add_columns<T, 1>(factor, b + d, b_row, rows, put);
  if (d < D) add_columns<T, 1>(factor, b + d, b_row, rows, put, D - d);
}

}  // namespace spool::cpu
