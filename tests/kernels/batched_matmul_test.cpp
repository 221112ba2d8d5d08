// runs: threads
// Products of many matrices on the cpu against nested loops in f64.

#include "tests/kernels/batched_matmul_testing.h"

#include "spool/kernels/cpu/matmul.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"

namespace spool::testing {
namespace {

constexpr size_t budget = size_t{64} << 20;
constexpr BatchedTypes all_types[] = {{DType::f64, DType::f64},
                                      {DType::f32, DType::f32},
                                      {DType::bf16, DType::bf16},
                                      {DType::bf16, DType::f32}};

// Small matrices, whose products plain loops compute, several at once; larger ones; some of more
// than a tile of rows or of columns; and without terms.
const BatchedCase cases[] = {{1, 1, 1, 1},    {7, 3, 5, 4},    {700, 8, 9, 6}, {3, 70, 33, 40},
                             {2, 520, 9, 17}, {2, 5, 260, 65}, {3, 5, 4, 0}};

TEST(BatchedMatmul, FollowsItsFormulaInEveryForm) {
  CpuStream stream(budget, 2);
  for (const BatchedCase& c : cases) {
    for (int i = 0; i < batched_forms; ++i) {
      const BatchedCase p = in_form(c, i);
      for (const BatchedTypes& t : all_types) {
        EXPECT_LT(difference(batched_product(p, t, stream), batched_reference(p, t, stream)),
                  tolerance(t.out))
            << p << ", " << name(t.in) << " into " << name(t.out);
      }
    }
  }
}

TEST(BatchedMatmul, TakesFourDimensions) {
  CpuStream stream(budget, 1);
  const BatchedCase p{6, 4, 3, 5};
  const BatchedTensors t(p, all_types[1], stream);
  const Tensor a = t.a.reshape({2, 3, 4, 5}), b = t.b.reshape({2, 3, 5, 3}),
               c = t.c.reshape({2, 3, 4, 3});
  launch(BatchedMatmul{.c = c, .a = a, .b = b}, stream);
  EXPECT_LT(difference(values(c), batched_reference(p, all_types[1], stream)), 1e-5);
}

TEST(BatchedMatmul, BitsAndPeakDoNotDependOnTheNumberOfThreads) {
  for (const BatchedCase& c : {BatchedCase{300, 8, 9, 6}, {5, 130, 300, 33}}) {
    for (const BatchedTypes& t : all_types) {
      for (const int i : {0, 5, 10, 19}) {
        const BatchedCase p = in_form(c, i);
        SCOPED_TRACE(sentence(p, ", ", name(t.in)));
        Numbers wanted;
        const std::vector<int> few{1, 3}, many{1, 2, 3, 7, 20};
        for (const int threads : finds_races() ? few : many) {
          MetaStream meta(Machine{.architecture = this_processor(threads)});
          const BatchedTensors foretold(p, t, meta);
          launch(foretold.kernel(p), meta);
          CpuStream stream(meta.memory().peak, threads);
          const Numbers found = batched_product(p, t, stream);
          if (wanted.empty()) wanted = found;
          EXPECT_EQ(found, wanted) << threads << " threads";
          EXPECT_EQ(stream.memory().peak, meta.memory().peak) << threads << " threads";
        }
      }
    }
  }
}

// A batch of one matrix, or of rows by one factor, has the bits of the plain product.
TEST(BatchedMatmul, OfOneMatrixIsMatmul) {
  CpuStream stream(budget, 2);
  for (const BatchedTypes& t : all_types) {
    const BatchedTensors x({1, 130, 70, 90}, t, stream);
    launch(x.kernel({1, 130, 70, 90}), stream);
    const Tensor c = unset({130, 70}, t.out, stream);
    launch(Matmul{.c = c, .a = x.a.reshape({130, 90}), .b = x.b.reshape({90, 70})}, stream);
    EXPECT_EQ(values(x.c), values(c));
  }
}

TEST(BatchedMatmul, MayBeEmpty) {
  CpuStream stream(budget, 1);
  for (const BatchedCase& p : {BatchedCase{2, 0, 3, 4}, {2, 3, 0, 4}, {2, 3, 0, 0}}) {
    const Tensor c({Shape{p.count, p.M, p.N}}, stream), a({Shape{p.count, p.M, p.K}}, stream),
        b({Shape{p.count, p.K, p.N}}, stream);
    launch(BatchedMatmul{.c = c, .a = a, .b = b}, stream);
    stream.synchronize();
  }
}

TEST(BatchedMatmul, CountsEveryProduct) {
  MetaStream meta(Machine{});
  const BatchedTensors t({6, 4, 3, 5}, all_types[1], meta);
  const Cost cost = t.kernel({6, 4, 3, 5}).cost();
  EXPECT_EQ(cost.flops, 2.0 * 6 * 4 * 3 * 5);
  EXPECT_EQ(cost.bytes, 4.0 * 6 * (4 * 3 + 4 * 5 + 5 * 3));
}

TEST(BatchedMatmul, RefusesRowsAndMatricesThatDoNotFit) {
  CpuStream stream(budget, 1);
  const auto refused = [&](const Shape& c, const Shape& a, const Shape& b) {
    const Tensor to({c}, stream), left({a}, stream), right({b}, stream);
    return error_of([&] { launch(BatchedMatmul{.c = to, .a = left, .b = right}, stream); });
  };
  EXPECT_EQ(refused({2, 3, 4}, {2, 3, 5}, {4}),
            "batched_matmul: b is f32 (4), and matrices have two dimensions or more");
  EXPECT_EQ(refused({2, 3, 4}, {2, 3, 5}, {3, 5, 4}),
            "batched_matmul: b is f32 (3, 5, 4), and f32 (10, 4) would fit the other arguments");
}

}  // namespace
}  // namespace spool::testing
