// runs: threads
// Products of matrices on the cpu, with several threads.

#include "spool/runtime/cpu/bf16_products.h"
#include "tests/kernels/matmul_testing.h"

namespace spool::testing {
namespace {

TEST(MatmulThreads, BitsForFewRowsDoNotDependOnTheNumberOfThreads) {
  for (const int64_t M : {1, 3}) {
    const MatmulProblem p({M, 1300, 130});
    const MatmulForm f{
        .a_transposed = false, .b_transposed = true, .bias = true, .accumulate = true};
    for (const MatmulTypes& t : all_matmul_types) {
      expect_same_for_any_threads(
          [&](Stream& stream) { return values(p.run(f, t, by_launch, stream)); });
    }
  }
}

TEST(MatmulThreads, BitsDoNotDependOnTheNumberOfThreads) {
  const MatmulProblem p({513, 1300, 130});
  for (const MatmulTypes& t : all_matmul_types) {
    for (int i = 0; i < 4; ++i) {
      for (const Multiply multiply : {by_launch, by_plain_loops}) {
        SCOPED_TRACE(describe(p, matmul_form(i), t));
        CpuStream alone(matmul_budget, 1);
        const Numbers wanted = values(p.run(matmul_form(i), t, multiply, alone));
        const std::vector<int> one{3}, some{2, 3, 5};
        for (const int threads : finds_races() ? one : some) {
          CpuStream several(matmul_budget, threads);
          EXPECT_EQ(values(p.run(matmul_form(i), t, multiply, several)), wanted)
              << threads << " threads";
        }
      }
    }
  }
}

TEST(MatmulThreads, PeakIsForetoldToTheByteForAnyNumberOfThreads) {
  for (const MatmulExtent& e : {MatmulExtent{1, 1, 1}, {2, 2, 2}, {7, 65, 129}, {130, 1300, 33}}) {
    const MatmulProblem p(e);
    for (const MatmulTypes& t : all_matmul_types) {
      for (const int i : {0, 1, 2, 9, 15}) {
        const MatmulForm f = matmul_form(i);
        SCOPED_TRACE(describe(p, f, t));
        for (int threads = 1; threads <= 7; threads += finds_races() ? 3 : 1) {
          MetaStream meta(Machine{.architecture = this_processor(threads)});
          p.run(f, t, by_launch, meta);
          const size_t foretold = meta.memory().peak;
          CpuStream stream(foretold, threads);
          p.run(f, t, by_launch, stream);
          EXPECT_EQ(stream.memory().peak, foretold) << threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
