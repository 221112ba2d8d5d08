#include "spool/kernels/dropout.h"

#include "spool/kernels/cpu/loops.h"
#include "spool/runtime/random.h"

namespace spool {
namespace {

constexpr int64_t batch = 512;  // elements whose words are drawn at a time

// Philox as in runtime/random.h, but for counters side by side: each word in the lower half of an
// u64, which the product wants, so that nothing is rearranged from round to round.
struct Draw {
  PhiloxKey key;
  uint32_t node, step, micro_batch;

  explicit Draw(const Dropout& k) : node(k.node) {
    const auto* random = k.random.as<uint32_t>();
    key = {random[0], random[1]};
    step = random[2];
    micro_batch = random[3];
  }

  // The words of elements 4 * first, 4 * first + 1, ..., of `blocks` times four.
  void operator()(uint32_t first, int64_t blocks, uint32_t* words) const {
    using Rounds = PhiloxRounds;
    constexpr uint64_t low = 0xFFFFFFFF;
    const Draw d = *this;
#pragma omp simd
    for (int64_t j = 0; j < blocks; ++j) {
      uint64_t c0 = first + static_cast<uint32_t>(j), c1 = d.node, c2 = d.step, c3 = d.micro_batch;
      uint32_t k0 = d.key[0], k1 = d.key[1];
      for (int round = 0; round < Rounds::count; ++round) {
        const uint64_t a = Rounds::times_0 * (c0 & low), b = Rounds::times_2 * (c2 & low);
        c0 = (b >> 32) ^ c1 ^ k0;
        c1 = b;
        c2 = (a >> 32) ^ c3 ^ k1;
        c3 = a;
        k0 += Rounds::plus_0;
        k1 += Rounds::plus_1;
      }
      words[4 * j] = static_cast<uint32_t>(c0);
      words[4 * j + 1] = static_cast<uint32_t>(c1);
      words[4 * j + 2] = static_cast<uint32_t>(c2);
      words[4 * j + 3] = static_cast<uint32_t>(c3);
    }
  }
};

// Elements [begin, end) of x.
template <class T, class Out>
void drop(const Dropout& k, const Draw& draw, int64_t begin, int64_t end, const Out& y) {
  using A = cpu::accumulator_t<T>;
  const A factor = 1 / (1 - static_cast<A>(k.p));
  const float p = k.p;
  uint32_t words[batch];
  for (int64_t at = begin; at < end;) {
    const int64_t skip = (k.first + at) % 4;
    const int64_t count = std::min(batch - skip, end - at);
    draw(static_cast<uint32_t>((k.first + at) / 4), (skip + count + 3) / 4, words);
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
