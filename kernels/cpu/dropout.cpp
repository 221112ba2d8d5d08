#include "spool/kernels/dropout.h"

#include <array>

#include "spool/kernels/cpu/loops.h"
#include "spool/runtime/random.h"

namespace spool {
namespace {

constexpr int64_t batch = 512;  // elements whose words are drawn at a time

// The words of elements 4 * block, 4 * block + 1, ... of the whole, at least `count` of them.
class Draw {
 public:
  explicit Draw(const Dropout& k) : node_(k.node) {
    for (size_t i = 0; i < 4; ++i) random_[i] = k.random.as<uint32_t>()[i];
  }
  void operator()(int64_t block, int64_t count, std::array<uint32_t, batch>& words) const {
    const PhiloxKey key{random_[0], random_[1]};
    const uint32_t first = static_cast<uint32_t>(block), node = node_;
    const uint32_t step = random_[2], micro_batch = random_[3];
    const int64_t blocks = (count + 3) / 4;
    uint32_t* to = words.data();
#pragma omp simd
    for (int64_t j = 0; j < blocks; ++j) {
      const PhiloxCounter drawn =
          philox(key, {first + static_cast<uint32_t>(j), node, step, micro_batch});
      to[4 * j] = drawn[0];
      to[4 * j + 1] = drawn[1];
      to[4 * j + 2] = drawn[2];
      to[4 * j + 3] = drawn[3];
    }
  }

 private:
  std::array<uint32_t, 4> random_{};
  uint32_t node_;
};

// Elements [begin, end) of x.
template <class T, class Out>
void drop(const Dropout& k, const Draw& draw, int64_t begin, int64_t end, const Out& y) {
  using A = cpu::accumulator_t<T>;
  const A factor = 1 / (1 - static_cast<A>(k.p));
  const float p = k.p;
  std::array<uint32_t, batch> words;
  for (int64_t at = begin; at < end;) {
    const int64_t skip = (k.first + at) % 4;
    const int64_t count = std::min(batch - skip, end - at);
    draw((k.first + at) / 4, skip + count, words);
    const uint32_t* word = words.data() + skip;
    const T* x = k.x.as<T>() + at;
    cpu::put_all(count, y.at(at),
                 [=](int64_t i) { return uniform(word[i]) >= p ? A(x[i]) * factor : A{0}; });
    at += count;
  }
}

}  // namespace

void run(const Dropout& k, CpuStream& stream) {
  check(k.p >= 0 && k.p < 1, "dropout: p = ", k.p, " is not in [0, 1)");
  const Draw draw(k);
  cpu::dispatch(k.x.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    cpu::dispatch_sink<T>(k.y, [&](auto y) {
      stream.parallel_for(k.x.numel(), cpu::piece_elements,
                          [&](int64_t begin, int64_t end) { drop<T>(k, draw, begin, end, y); });
    });
  });
}

}  // namespace spool
