// GranuleHashes on the cpu: the hashes of plain loops, which differ where a bit does.

#include "spool/kernels/granule_hashes.h"

#include <utility>

#include "spool/runtime/meta/stream.h"
#include "tests/kernels/granule_hashes_testing.h"

namespace spool::testing {
namespace {

TEST(GranuleHashes, AreThoseOfPlainLoops) {
  CpuStream stream(64 << 20, 2);
  for (const int64_t skip : {0, 1}) {
    const std::vector<Tensor> all = hashed_tensors(floating, skip, stream);
    EXPECT_EQ(hashes(all, stream), plain_hashes(all)) << skip;
  }
  EXPECT_EQ(hashes({}, stream), Hashes());
}

TEST(GranuleHashes, DoNotDependOnTheNumberOfThreads) {
  const auto with = [](int threads) {
    CpuStream stream(64 << 20, threads);
    return hashes({normal({500003}, DType::bf16, stream, 1)}, stream);
  };
  EXPECT_EQ(with(1), with(3));
}

// The numbers of the granules that a change of some elements changes.
std::vector<size_t> changed_by(const std::vector<uint16_t>& before,
                               const std::vector<uint16_t>& after, CpuStream& stream) {
  const auto of = [&](const std::vector<uint16_t>& bits) {
    const Tensor x({{std::ssize(bits)}, DType::bf16}, stream);
    write_bytes(x, 0, std::as_bytes(std::span(bits)));
    return hashes({x}, stream);
  };
  const Hashes first = of(before), second = of(after);
  std::vector<size_t> changed;
  for (size_t g = 0; g < first.size(); ++g) {
    if (first[g] != second[g]) changed.push_back(g);
  }
  return changed;
}

TEST(GranuleHashes, DifferWhereABitDoes) {
  CpuStream stream(64 << 20, 1);
  const std::vector<uint16_t> zeros(5000);
  for (const size_t at : {0, 3, 2047, 2048, 4095, 4999}) {
    for (int bit = 0; bit < 16; ++bit) {
      std::vector<uint16_t> other = zeros;
      other[at] = static_cast<uint16_t>(1u << bit);
      EXPECT_EQ(changed_by(zeros, other, stream), std::vector{at / 2048}) << at << ", " << bit;
    }
  }
}

TEST(GranuleHashes, DifferWhereElementsAreSwapped) {
  CpuStream stream(64 << 20, 1);
  std::vector<uint16_t> all(3000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i * i);
  for (const auto& [a, b] : std::vector<std::pair<size_t, size_t>>{{0, 1}, {0, 4}, {5, 2047}}) {
    std::vector<uint16_t> other = all;
    std::swap(other[a], other[b]);
    EXPECT_EQ(changed_by(all, other, stream), std::vector<size_t>{0}) << a << ", " << b;
  }
  std::vector<uint16_t> other = all;
  std::swap(other[2047], other[2048]);
  EXPECT_EQ(changed_by(all, other, stream), (std::vector<size_t>{0, 1}));
}

TEST(GranuleHashes, RefuseWhatDoesNotFit) {
  MetaStream stream{Machine{}};
  const Tensor x({{2049}, DType::f32}, stream), out({{3}, DType::i32}, stream);
  EXPECT_EQ(error_of([&] { launch(GranuleHashes{.out = out, .x = {x}}, stream); }),
            "granule_hashes: out is i32 (3), and i32 (4) would fit the other arguments");
}

}  // namespace
}  // namespace spool::testing
