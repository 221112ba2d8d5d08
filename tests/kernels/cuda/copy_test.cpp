// runs: threads
// StridedCopy, CopyBlocks and Permute on cuda.

#include "tests/kernels/copy_testing.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaCopy : public OnCuda {};

// As `out` is written and added to.
template <class Make>
void expect_copies_as_on_cpu(const Shape& out_shape, const Shape& in_shape, const Make& make) {
  for (const DType type : cuda_types) {
    for (const DType to : {type, DType::f32}) {
      expect_as_on_cpu(
          [&](Stream& stream) {
            const Tensor in = normal(in_shape, type, stream, 1);
            const Tensor out = normal(out_shape, to, stream, 2);
            launch(make(out, in), stream);
            Numbers all = values(out);
            launch(make(add_to(out), in), stream);
            append(all, out);
            return all;
          },
          1e-30);
    }
  }
}

TEST_F(CudaCopy, PermutesAsTheCpu) {
  for (const PermuteCase& c : permute_cases) {
    SCOPED_TRACE(sentence(c.shape, " to ", permuted(c)));
    expect_copies_as_on_cpu(permuted(c), c.shape, [&](const Grad& out, const View& in) {
      return Permute{.out = out, .in = in, .order = c.order};
    });
  }
}

TEST_F(CudaCopy, CopiesRowsAsTheCpu) {
  for (const RowsCase& c : rows_cases) {
    SCOPED_TRACE(sentence(c.rows, " rows of ", c.width));
    expect_copies_as_on_cpu({c.out_elements()}, {c.in_elements()},
                            [&](const Grad& out, const View& in) { return c.copy(out, in); });
  }
}

TEST_F(CudaCopy, CopiesBlocksAsTheCpu) {
  for (const BlocksCase& c : blocks_cases) {
    SCOPED_TRACE(sentence(c.blocks.size(), " blocks of ", c.in_elements, " elements"));
    expect_copies_as_on_cpu({c.out_elements}, {c.in_elements},
                            [&](const Grad& out, const View& in) {
                              return CopyBlocks{.out = out, .in = in, .blocks = c.blocks};
                            });
  }
}

TEST_F(CudaCopy, CopiesIntegers) {
  const auto stream = cuda_stream();
  // The last is a NaN that signals if it is taken for f32.
  const Tensor in = integers({2, 2}, {1, -2, INT32_MIN, 0x7fa00001}, *stream);
  const Tensor out({Shape{2, 2}, DType::i32}, *stream);
  launch(Permute{.out = out, .in = in, .order = {1, 0}}, *stream);
  EXPECT_EQ(read<int32_t>(out), (std::vector<int32_t>{1, INT32_MIN, -2, 0x7fa00001}));
  launch(StridedCopy{.out = out, .in = in, .rows = 1, .width = 4}, *stream);
  EXPECT_EQ(read<int32_t>(out), (std::vector<int32_t>{1, -2, INT32_MIN, 0x7fa00001}));
}

}  // namespace
}  // namespace spool::testing
