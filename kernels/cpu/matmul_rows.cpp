#include "spool/kernels/cpu/matmul_rows.h"

#include <type_traits>

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/row_products.h"
#include "spool/runtime/integer.h"

namespace spool::cpu {
namespace {

// With more rows oneDNN is faster.
constexpr int64_t max_rows = 8;
// Pieces are long, as a processor takes a while to detect that memory is read in order.
constexpr int64_t wanted_pieces = 16, min_bytes = 64 * 1024, max_bytes = 256 * 1024;

// Rows of b whose sums are added up across lanes together.
template <class T>
constexpr int together = static_cast<int>(std::min<int64_t>(4, Vector<accumulator_t<T>>::lanes));

// Rows [begin, end) of b with all rows of a.
template <class T, int few, class Out>
void multiply_piece(const Matmul& k, int64_t begin, int64_t end, const Out& out) {
  using S = accumulator_t<T>;
  const int64_t K = k.K(), a_row = k.a_stride(), b_row = k.b_stride(), c_row = k.c_stride();
  const S alpha = static_cast<S>(k.alpha);
  const T *a = k.a.as<T>(), *b = k.b.as<T>(), *bias = k.bias.as<T>();
  int64_t n = begin;
  const auto put = [&](int64_t count) {
    return [&, count](int m, const typename Vector<S>::type& sums) {
      for (int64_t r = 0; r < count; ++r) {
        out.put(m * c_row + n + r, alpha * sums[r] + (bias ? static_cast<S>(bias[n + r]) : 0));
      }
    };
  };
  constexpr int rows = together<T>;
  for (; n + rows <= end; n += rows)
    multiply_rows<T, few, rows>(a, a_row, b + n * b_row, b_row, K, put(rows));
  for (; n < end; ++n) multiply_rows<T, few, 1>(a, a_row, b + n * b_row, b_row, K, put(1));
}

// Calls f with M as a constant.
template <class F>
void with_constant(int64_t M, const F& f) {
  static_assert(max_rows == 8);
  if (M == 1) return f(std::integral_constant<int, 1>());
  if (M == 2) return f(std::integral_constant<int, 2>());
  if (M == 3) return f(std::integral_constant<int, 3>());
  if (M == 4) return f(std::integral_constant<int, 4>());
  if (M == 5) return f(std::integral_constant<int, 5>());
  if (M == 6) return f(std::integral_constant<int, 6>());
  if (M == 7) return f(std::integral_constant<int, 7>());
  f(std::integral_constant<int, 8>());
}

}  // namespace

bool has_few_rows(const Matmul& k) {
  return k.M() <= max_rows && k.b_transposed && !k.a_transposed;
}

void multiply_few_rows(const Matmul& k, CpuStream& stream) {
  dispatch(k.a.dtype(), [&]<class T>(T) {
    constexpr int64_t block = together<T>;
    const int64_t row = std::max<int64_t>(k.K() * static_cast<int64_t>(sizeof(T)), 1);
    const int64_t bytes = std::clamp(k.N() * row / wanted_pieces, min_bytes, max_bytes);
    const int64_t grain = round_up(bytes / row + 1, block);
    dispatch_sink<T>(k.c, [&](auto c) {
      with_constant(k.M(), [&](auto few) {
        stream.parallel_for(k.N(), grain, [&](int64_t begin, int64_t end) {
          multiply_piece<T, few.value>(k, begin, end, c);
        });
      });
    });
  });
}

}  // namespace spool::cpu
