// runs: threads
// SumRanks on cuda: the bits of the cpu.

#include "spool/kernels/sum_ranks.h"

#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/sum_ranks_testing.h"

namespace spool::testing {
namespace {

class CudaSumRanks : public OnCuda {};

TEST_F(CudaSumRanks, HasTheBitsOfTheCpu) {
  auto cases = rank_cases(DType::f32);
  for (const RankCase& c : rank_cases(DType::bf16)) cases.push_back(c);
  for (const RankCase& c : cases) {
    SCOPED_TRACE(c.words());
    CpuStream cpu(on_both, 1);
    const RankTensors on_cpu(c, cpu);
    launch(on_cpu.kernel(), cpu);
    const auto wanted = bits_of(on_cpu.sums());
    in_every_order([&] {
      const auto stream = cuda_stream();
      const RankTensors tensors(c, *stream);
      launch(tensors.kernel(), *stream);
      EXPECT_EQ(bits_of(tensors.sums()), wanted);
    });
  }
}

TEST_F(CudaSumRanks, TakesAsManySlicesAndRanksAsTheirListsHold) {
  const auto stream = cuda_stream();
  const Tensor sent = normal({5000}, DType::f32, *stream, 1),
               own = normal({64, 3}, DType::f32, *stream, 2),
               out = unset({64, 3}, DType::f32, *stream);
  SumRanks k;
  for (int64_t s = 0; !k.slices.full(); ++s) {
    k.slices.add({.out = out.slice({s, s + 1}), .own = own.slice({s, s + 1}), .at = 3 * s});
  }
  k.pieces.add(nullptr);
  while (!k.pieces.full()) k.pieces.add(sent.view().data());
  launch(k, *stream);
  const Numbers x = values(sent), first = values(own), sums = values(out);
  for (size_t i = 0; i < sums.size(); ++i) {
    auto total = static_cast<float>(first[i]);
    for (int r = 1; r < SumRanks::max_ranks; ++r) total += static_cast<float>(x[i]);
    EXPECT_EQ(sums[i], double{total});
  }
}

TEST_F(CudaSumRanks, WithoutElementsLaunchesNothing) {
  const auto stream = cuda_stream();
  launch(SumRanks{.pieces = {nullptr}}, *stream);
  stream->synchronize();
}

TEST_F(CudaSumRanks, RefusesF64) {
  const auto stream = cuda_stream();
  const Tensor x({Shape{4}, DType::f64}, *stream);
  expect_error(ErrorKind::invalid, {"f64"}, [&] {
    launch(SumRanks{.slices = {{.out = x, .own = x}}, .pieces = {nullptr}}, *stream);
  });
}

}  // namespace
}  // namespace spool::testing
