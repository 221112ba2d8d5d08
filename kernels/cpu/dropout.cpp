#include "spool/kernels/dropout.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/kernels/cpu/philox.h"
#include "spool/runtime/integer.h"

namespace spool {
namespace {

constexpr int64_t batch = 512;  // elements whose words are drawn at a time

cpu::PhiloxRow row_of(const Dropout& k) {
  const auto* random = k.random.as<uint32_t>();
  return {.key = {random[0], random[1]}, .c1 = k.node, .c2 = random[2], .c3 = random[3]};
}

// Elements [begin, end) of x.
template <class T, class Out>
void drop(const Dropout& k, const cpu::PhiloxRow& row, int64_t begin, int64_t end, const Out& y) {
  using A = cpu::accumulator_t<T>;
  const A factor = 1 / (1 - static_cast<A>(k.p));
  const float p = k.p;
  uint32_t words[batch];
  for (int64_t at = begin; at < end;) {
    const int64_t skip = (k.first + at) % 4;
    const int64_t count = std::min(batch - skip, end - at);
    row.draw(static_cast<uint32_t>((k.first + at) / 4), ceil_div<int64_t>(skip + count, 4), words);
    const uint32_t* word = words + skip;
    const T* x = k.x.as<T>() + at;
    cpu::put_all(count, y.at(at),
                 [=](int64_t i) { return uniform(word[i]) >= p ? A(x[i]) * factor : A{0}; });
    at += count;
  }
}

}  // namespace

void run(const Dropout& k, CpuStream& stream) {
  check(k.p >= 0 && k.p < 1, "dropout: p = ", k.p, " is not in [0, 1)");
  const cpu::PhiloxRow row = row_of(k);
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cpu::dispatch_sink<T>(k.y, [&](auto y) {
      stream.parallel_for(k.x.numel(), cpu::piece_elements,
                          [&](int64_t begin, int64_t end) { drop<T>(k, row, begin, end, y); });
    });
  });
}

}  // namespace spool
