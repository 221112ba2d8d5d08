// embedding() on a tape: positions that do not begin at 0, for inference.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

class EmbeddingOp : public ::testing::Test {
 protected:
  CpuStream stream{size_t{1} << 20, 2};
  Tensor weight = normal({5, 6}, DType::f64, stream, 1);
  Tensor positions = normal({9, 6}, DType::f64, stream, 2);
  std::vector<int32_t> ids{4, 0, 2};

  // The embeddings of the three tokens, the first one at this position.
  std::vector<double> embed(int64_t first, bool recording) {
    const Tensor tokens = make_tensor<int32_t>({1, 3}, ids, stream);
    Tape tape(stream, {.recording = recording});
    const Var w = tape.input(weight), p = tape.input(positions);
    return values(embedding(tape.input(tokens), w, p, first).tensor());
  }
};

TEST_F(EmbeddingOp, BeginsAtAnyPosition) {
  const std::vector<double> w = values(weight), p = values(positions);
  std::vector<double> wanted;
  for (size_t n = 0; n < ids.size(); ++n) {
    for (size_t c = 0; c < 6; ++c)
      wanted.push_back(w[static_cast<size_t>(ids[n]) * 6 + c] + p[(6 + n) * 6 + c]);
  }
  EXPECT_LT(difference(embed(6, false), wanted), 1e-15);
  EXPECT_EQ(embed(0, true), embed(0, false));
}

TEST_F(EmbeddingOp, RefusesPositionsItDoesNotHave) {
  expect_error(ErrorKind::invalid, {"position 7", "9"}, [&] { embed(7, false); });
  expect_error(ErrorKind::invalid, {"position -1"}, [&] { embed(-1, false); });
}

TEST_F(EmbeddingOp, ARecordingTapeBeginsAtPositionZero) {
  expect_error(ErrorKind::invalid, {"does not record"}, [&] { embed(1, true); });
}

}  // namespace
}  // namespace spool::testing
