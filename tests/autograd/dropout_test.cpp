// Limits of dropout: where it can be cut, and how many elements have random numbers of their own.

#include "spool/autograd/ops.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class DropoutLimits : public ::testing::Test {
 protected:
  MetaStream stream{Machine{}};
  Tensor random = Tensor({Shape{4}, DType::i32}, stream);

  void drop(const Shape& shape, int64_t first_row) {
    Tape tape(stream, {.random = random, .first_row = first_row});
    const Var y = dropout(tape.input(Tensor({shape, DType::bf16}, stream)), 0.5f);
    // An element's draw is that of its row's first element and its place in the row.
    EXPECT_STREQ(tape.nodes().back().op->indices(), "nC->nC");
    EXPECT_EQ(y.shape(), shape);
  }
};

TEST_F(DropoutLimits, MoreElementsThanItsCounterHasAreRefused) {
  constexpr int64_t rows = int64_t{1} << 24, columns = int64_t{1} << 10;  // 2^34
  drop({rows, columns}, 0);
  drop({rows / 2, columns}, rows / 2);
  const auto expect_refused = [&](const Shape& shape, int64_t first_row) {
    expect_error(ErrorKind::invalid, {"dropout", "17179869184 elements", "micro-batches"},
                 [&] { drop(shape, first_row); });
  };
  expect_refused({rows, columns + 1}, 0);
  expect_refused({rows / 2, columns}, rows / 2 + 1);
}

}  // namespace
}  // namespace spool::testing
