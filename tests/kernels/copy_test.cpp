// StridedCopy, CopyBlocks and Permute on the cpu against plain loops.

#include "tests/kernels/copy_testing.h"

#include <numeric>

namespace spool::testing {
namespace {

// The types of `out` for this type of `in`.
std::vector<DType> types_of_out(DType in) {
  return in == DType::bf16 ? std::vector{DType::bf16, DType::f32} : std::vector{in};
}

Numbers permuted_values(const PermuteCase& c, const Numbers& in) {
  const Shape to = permuted(c);
  std::array<int64_t, 4> strides{};
  for (int64_t stride = 1, d = c.shape.rank() - 1; d >= 0; --d) {
    strides[static_cast<size_t>(d)] = stride;
    stride *= c.shape[static_cast<int>(d)];
  }
  Numbers out(in.size());
  for (size_t i = 0; i < out.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t from = 0;
    for (int d = to.rank() - 1; d >= 0; --d) {
      from += rest % to[d] * strides[static_cast<size_t>(c.order[static_cast<size_t>(d)])];
      rest /= to[d];
    }
    out[i] = at(in, from);
  }
  return out;
}

TEST(Permute, PutsEachElementWhereTheOrderSays) {
  CpuStream stream(64 << 20, 2);
  for (const PermuteCase& c : permute_cases) {
    SCOPED_TRACE(sentence(c.shape, " to ", permuted(c)));
    for (const DType type : floating) {
      const Tensor in = normal(c.shape, type, stream, 1);
      const Numbers wanted = permuted_values(c, values(in));
      for (const DType to : types_of_out(type)) {
        const Tensor out = unset(permuted(c), to, stream);
        launch(Permute{.out = out, .in = in, .order = c.order}, stream);
        EXPECT_EQ(values(out), wanted);
        expect_gradient({permuted(c), to}, stream, wanted, [&](const Grad& grad) {
          launch(Permute{.out = grad, .in = in, .order = c.order}, stream);
        });
      }
    }
  }
}

TEST(Permute, TakesALargeMatrixInPieces) {
  for (const DType type : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const PermuteCase c{{700, 1100}, {1, 0}};
      const Tensor in = normal(c.shape, type, stream, 1), out = unset(permuted(c), type, stream);
      launch(Permute{.out = out, .in = in, .order = c.order}, stream);
      EXPECT_EQ(values(out), permuted_values(c, values(in)));
      return values(out);
    });
  }
}

TEST(Permute, CopiesIntegers) {
  CpuStream stream(1 << 20, 1);
  std::vector<int32_t> all(6);
  std::iota(all.begin(), all.end(), INT32_MAX - 5);
  const Tensor in = integers({2, 3}, all, stream), out({Shape{3, 2}, DType::i32}, stream);
  launch(Permute{.out = out, .in = in, .order = {1, 0}}, stream);
  EXPECT_EQ(read<int32_t>(out), (std::vector{all[0], all[3], all[1], all[4], all[2], all[5]}));
  expect_error(ErrorKind::invalid, {"permute: i32 is only copied"}, [&] {
    launch(Permute{.out = add_to(out), .in = in, .order = {1, 0}}, stream);
  });
}

TEST(Permute, RefusesAnOrderThatIsNone) {
  CpuStream stream(1 << 20, 1);
  const Tensor in({Shape{2, 3}, DType::f32}, stream), out({Shape{3, 2}, DType::f32}, stream);
  const auto refused = [&](std::array<int, 4> order, const std::string& what) {
    expect_error(ErrorKind::invalid, {"permute: ", what},
                 [&] { launch(Permute{.out = out, .in = in, .order = order}, stream); });
  };
  refused({1, 1}, "the order of the 2 dimensions has 1 at 1; each must stand there once");
  refused({1, 2}, "has 2 at 1");
  refused({-1, 0}, "has -1 at 0");
  refused({0, 1}, "dimension 0 of out f32 (3, 2) must be as long as dimension 0 of in f32 (2, 3)");
}

TEST(StridedCopy, CopiesRowsAndNothingElse) {
  CpuStream stream(64 << 20, 2);
  for (const RowsCase& c : rows_cases) {
    SCOPED_TRACE(sentence(c.rows, " rows of ", c.width));
    for (const DType type : floating) {
      const Tensor in = normal({c.in_elements()}, type, stream, 1);
      const Numbers from = values(in);
      for (const DType to : types_of_out(type)) {
        for (const bool accumulate : {false, true}) {
          const Tensor out = normal({c.out_elements()}, to, stream, 2);
          Numbers wanted = values(out);
          for (int64_t r = 0; r < c.rows; ++r) {
            for (int64_t i = 0; i < c.width; ++i) {
              double& element = wanted[static_cast<size_t>(c.out_first + r * c.out_stride + i)];
              element = (accumulate ? element : 0) + at(from, c.in_first + r * c.in_stride + i);
            }
          }
          launch(c.copy({out, accumulate}, in), stream);
          EXPECT_LT(difference(values(out), wanted), accumulate ? tolerance(to) : 1e-30);
        }
      }
    }
  }
}

TEST(StridedCopy, CopiesIntegers) {
  CpuStream stream(1 << 20, 1);
  const Tensor in = integers({2, 3}, {1, 2, 3, INT32_MIN, 5, 6}, stream);
  const Tensor out({Shape{2, 2}, DType::i32}, stream);
  launch(StridedCopy{.out = out, .in = in, .rows = 2, .width = 2, .out_stride = 2, .in_stride = 3},
         stream);
  EXPECT_EQ(read<int32_t>(out), (std::vector<int32_t>{1, 2, INT32_MIN, 5}));
}

TEST(StridedCopy, RefusesRowsOutsideOfATensor) {
  CpuStream stream(1 << 20, 1);
  const Tensor in({Shape{3, 4}, DType::f32}, stream), out({Shape{2, 4}, DType::f32}, stream);
  const auto refused = [&](const StridedCopy& k, const std::string& what) {
    expect_error(ErrorKind::invalid, {"strided_copy: ", what}, [&] { launch(k, stream); });
  };
  refused(
      {.out = out, .in = in, .rows = 2, .width = 4, .out_stride = 4, .in_stride = 4, .in_first = 5},
      "2 rows of 4 elements, the first at 5 and each 4 after the one before, are not inside of "
      "in f32 (3, 4)");
  refused({.out = out, .in = in, .rows = 3, .width = 4, .out_stride = 4, .in_stride = 4},
          "not inside of out f32 (2, 4)");
  refused({.out = out,
           .in = in,
           .rows = 2,
           .width = 4,
           .out_stride = 4,
           .in_stride = -4,
           .in_first = 8},
          "each -4");
  refused({.out = out,
           .in = in,
           .rows = 2,
           .width = 4,
           .out_stride = 4,
           .in_stride = 4,
           .out_first = -1},
          "first at -1");
  refused({.out = out, .in = in, .rows = 2, .width = 4, .out_stride = 3, .in_stride = 4},
          "rows of 4 elements overlap if each is 3 after the one before");
  refused({.out = out, .in = in, .rows = -1, .width = 4}, "-1 rows of 4 elements");
}

TEST(CopyBlocks, CopiesEachBlockAndNothingElse) {
  CpuStream stream(64 << 20, 2);
  for (const BlocksCase& c : blocks_cases) {
    for (const DType type : floating) {
      const Tensor in = normal({c.in_elements}, type, stream, 1);
      const Numbers from = values(in);
      for (const bool accumulate : {false, true}) {
        const Tensor out = normal({c.out_elements}, type, stream, 2);
        Numbers wanted = values(out);
        for (const CopyBlocks::Block& b : c.blocks) {
          for (int64_t e = 0; e < b.elements(); ++e) {
            const int64_t t = e / (b.rows * b.width), r = e / b.width % b.rows, i = e % b.width;
            double& to =
                wanted[static_cast<size_t>(b.out_first + t * b.out_step + r * b.out_stride + i)];
            to = (accumulate ? to : 0) + at(from, b.in_first + t * b.in_step + r * b.in_stride + i);
          }
        }
        launch(CopyBlocks{.out = {out, accumulate}, .in = in, .blocks = c.blocks}, stream);
        EXPECT_LT(difference(values(out), wanted), accumulate ? tolerance(type) : 1e-30);
      }
    }
  }
}

TEST(CopyBlocks, RefusesBlocksOutsideOfATensorAndThoseThatOverlap) {
  CpuStream stream(1 << 20, 1);
  const Tensor in({Shape{3, 4}, DType::f32}, stream), out({Shape{2, 4}, DType::f32}, stream);
  const auto refused = [&](const CopyBlocks::Block& b, const std::string& what) {
    expect_error(ErrorKind::invalid, {"copy_blocks: ", what}, [&] {
      launch(CopyBlocks{.out = out, .in = in, .blocks = {b, b}}, stream);
    });
  };
  const CopyBlocks::Block b{.times = 2, .rows = 1, .width = 4, .out_step = 4, .in_step = 4};
  CopyBlocks::Block far = b, behind = b, none = b;
  far.in_first = 5, behind.out_first = 1, none.rows = -1;
  refused(far, "2 times 1 rows of 4 elements, the first at 5, are not inside of in f32 (3, 4)");
  refused(behind, "the first at 1, are not inside of out f32 (2, 4)");
  refused(none, "2 times -1 rows of 4 elements");
  refused(b, "blocks of 16 elements overlap in out, f32 (2, 4)");
}

}  // namespace
}  // namespace spool::testing
