// attention() of texts packed into one row: `first` says where each begins.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr Heads heads{.query = 4, .key = 2};
constexpr int64_t T = 12, row = 8 * 6;

class PackedAttention : public ::testing::Test {
 protected:
  CpuStream stream{size_t{8} << 20, 2};
  Tensor qkv = normal({2, T, row}, DType::f64, stream, 1);
  Tensor dy = normal({2, T, 4 * 6}, DType::f64, stream, 2);

  struct Results {
    std::vector<double> y, gradient;
  };
  Results attend(const Tensor& x, const Tensor& upstream, const Tensor& first) {
    Tape tape(stream);
    const Var in = tape.input(x, /*needs_grad=*/true);
    const Var y = attention(in, heads, first ? tape.input(first) : Var());
    tape.backward(std::vector<Root>{{y, upstream}});
    return {values(y.tensor()), values(tape.grad(in))};
  }
  static void append(std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }
};

TEST_F(PackedAttention, IsThatOfEachTextAlone) {
  const std::vector<Range> texts[] = {{{0, 5}, {5, 6}, {6, 12}}, {{0, 12}}};
  std::vector<int32_t> first;
  Results wanted;
  for (int64_t b = 0; b < 2; ++b) {
    for (const Range text : texts[b]) {
      first.insert(first.end(), static_cast<size_t>(text.size()), static_cast<int32_t>(text.begin));
      const Range rows{b * T + text.begin, b * T + text.end};
      const Tensor x = qkv.reshape({2 * T, row}).slice(rows).reshape({1, text.size(), row});
      const Tensor up = dy.reshape({2 * T, 24}).slice(rows).reshape({1, text.size(), 24});
      const Results alone = attend(x, up, {});
      append(wanted.y, alone.y);
      append(wanted.gradient, alone.gradient);
    }
  }
  const Results packed = attend(qkv, dy, make_tensor<int32_t>({2, T}, first, stream));
  EXPECT_LT(difference(packed.y, wanted.y), 1e-14);
  EXPECT_LT(difference(packed.gradient, wanted.gradient), 1e-14);
  EXPECT_GT(difference(attend(qkv, dy, {}).y, wanted.y), 1e-3);
}

TEST_F(PackedAttention, RefusesFirstKeysOfAnotherShape) {
  const Tensor first = make_tensor<int32_t>({T}, std::vector<int32_t>(T), stream);
  expect_error(ErrorKind::invalid, {"attention: first keys of i32 (12)", "i32 (2, 12)"},
               [&] { attend(qkv, dy, first); });
}

// Rows of fewer numbers than heads must not be taken for a part of them.
TEST(PackedHeadsOfARow, ThatHasNotAllOfThemAreRefused) {
  MetaStream meta(Machine{});
  for (const int64_t length : {1, 6, 35, 40}) {
    Tape tape(meta);
    const Var x = tape.input(Tensor({Shape{2, 4, length}}, meta));
    const auto refused = [&](const auto& work) {
      expect_error(ErrorKind::invalid, {"does not divide into 36 heads"}, work);
    };
    refused([&] { attention(x, {.query = 12, .key = 12}); });
    const Var weight = tape.input(Tensor({Shape{1}}, meta));
    refused([&] { head_norm(x, weight, weight, {.query = 12, .key = 12}, 1e-5); });
    refused([&] { rope(x, tape.input(Tensor({Shape{4, 2}}, meta)), {.query = 12, .key = 12}); });
  }
}

}  // namespace
}  // namespace spool::testing
