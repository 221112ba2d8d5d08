// sum(), mean(), softmax(), cross_entropy(), mse(), permute() and transpose() on a tape: what
// check_op() does not see, namely values, shapes, and what is refused.

#include "spool/autograd/checks/check_op.h"
#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Numbers = std::vector<double>;

class Reductions : public ::testing::Test {
 protected:
  Var input(const Shape& shape, DType type = DType::f64, uint64_t seed = 1) {
    return tape.input(normal(shape, type, stream, seed), true);
  }
  Var targets(const std::vector<int32_t>& all) {
    return tape.input(make_tensor<int32_t>({static_cast<int64_t>(all.size())}, all, stream));
  }
  static Numbers of(const Var& v) { return values(v.tensor()); }
  template <class Work>
  static void expect_refused(const std::string& sentence, const Work& work) {
    expect_error(ErrorKind::invalid, {sentence}, work);
  }

  CpuStream stream{size_t{64} << 20, 2};
  Tape tape{stream, {}};
};

TEST_F(Reductions, AddUpAllElementsOrRows) {
  const Var x = tape.input(make_tensor<double>({2, 1, 3}, Numbers{1, 2, 3, 4, 5, 9}, stream));
  EXPECT_EQ(of(sum(x)), Numbers{24});
  EXPECT_EQ(of(mean(x)), Numbers{4});
  EXPECT_EQ(of(sum(x, Over::last)), (Numbers{6, 18}));
  EXPECT_EQ(of(mean(x, Over::last)), (Numbers{2, 6}));
  EXPECT_EQ(sum(x, Over::last).shape(), (Shape{2, 1}));
}

TEST_F(Reductions, OfAValueAndItselfAreZero) {
  const Var x = input({2, 3});
  const Var loss = mse(x, x);
  EXPECT_EQ(of(loss), Numbers{0});
  tape.backward(loss);
  EXPECT_EQ(values(tape.grad(x)), Numbers(6));
}

TEST_F(Reductions, HaveTheTypeOfSumsOrOfRows) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    const Var x = input({2, 3, 4, 5}, type), row = input({5}, type);
    EXPECT_EQ(mean(x).spec(), (Spec{{1}, accumulator(type)}));
    EXPECT_EQ(sum(x, Over::last).spec(), (Spec{{2, 3, 4}, type}));
    EXPECT_EQ(sum(row, Over::last).spec(), (Spec{{1}, type}));
  }
}

TEST_F(Reductions, OfNothingAreZeroOrRefused) {
  const Var none = input({2, 0});
  EXPECT_EQ(of(sum(none)), Numbers{0});
  EXPECT_EQ(of(sum(none, Over::last)), (Numbers{0, 0}));
  expect_refused("mean: there is no mean over no elements, of f64 (2, 0)", [&] { mean(none); });
  expect_refused("mean: there is no mean", [&] { mean(none, Over::last); });
  EXPECT_EQ(mean(input({0, 2}), Over::last).shape(), Shape{0});
  expect_refused("softmax: a row of f64 (2, 0) has no elements", [&] { softmax(none); });
  expect_refused("mse: a row of f64 (2, 0) has no elements, and so no mean",
                 [&] { mse(none, none); });
}

TEST_F(Reductions, TakeParameters) {
  Parameter p{.name = "p", .data = normal({3, 4}, DType::f64, stream, 5)};
  const Var y = mean(tape.input(p));
  tape.backward(y);
  for (const double g : values(p.grad)) EXPECT_DOUBLE_EQ(g, 1.0 / 12);
}

TEST_F(Reductions, GiveEachRowItsProbabilities) {
  const Var x = tape.input(make_tensor<double>({2, 2}, Numbers{0, std::log(3), 5, 5}, stream));
  EXPECT_LT(difference(of(softmax(x)), {0.25, 0.75, 0.5, 0.5}), 1e-15);
}

TEST_F(Reductions, CrossEntropyIsThatOfLinearCrossEntropy) {
  const Var logits = input({6, 4});
  Numbers identity(16);
  for (size_t i = 0; i < 4; ++i) identity[i * 5] = 1;
  const Var one = tape.input(make_tensor<double>({4, 4}, identity, stream));
  const Var t = targets({0, 3, -100, 1, 2, 2});
  for (const auto reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    const LossOptions options{.reduction = reduction, .options = {.label_smoothing = 0.1f}};
    const Var wanted = linear_cross_entropy(logits, one, t, options);
    const Var found = cross_entropy(logits, t, options);
    EXPECT_EQ(found.spec(), wanted.spec());
    EXPECT_LT(difference(of(found), of(wanted)), 1e-14);
  }
}

TEST_F(Reductions, LossesAreScaledAsTheTapeSays) {
  const Tensor scale = make_tensor<float>({1}, std::vector{0.125f}, stream);
  Tape scaled(stream, {.loss_scale = scale});
  const Tensor a = normal({6, 4}, DType::f32, stream, 1), b = normal({6, 4}, DType::f32, stream, 2);
  const Var x = scaled.input(a, true), y = scaled.input(b, true);
  const Var t = scaled.input(make_tensor<int32_t>({6}, std::vector{0, 3, 1, 1, 2, 2}, stream));
  for (const bool is_mse : {false, true}) {
    const auto loss = [&](Reduction r) {
      return is_mse ? mse(x, y, r) : cross_entropy(x, t, {.reduction = r});
    };
    EXPECT_NEAR(of(loss(Reduction::mean))[0], 0.125 * of(loss(Reduction::sum))[0], 1e-6);
  }
  const Var both = add(mse(x, y), cross_entropy(x, t));
  scaled.backward(both);
  const Numbers x_values = values(a), y_values = values(b), dy = values(scaled.grad(y));
  for (size_t i = 0; i < dy.size(); ++i) {
    EXPECT_NEAR(dy[i], 0.125 * (y_values[i] - x_values[i]) / 2, 1e-6);
  }
}

TEST_F(Reductions, CrossEntropyRefusesWhatDoesNotFit) {
  const Var logits = input({2, 3, 5});
  expect_refused(
      "cross_entropy: targets must be i32, one for each row of f64 (2, 3, 5), not i32 (5)", [&] {
        cross_entropy(logits, targets({0, 0, 0, 0, 0}));
      });
  expect_refused("cross_entropy: a vocabulary of 6 is more than the columns of f64 (2, 3, 5)", [&] {
    cross_entropy(logits, targets({0, 0, 0, 0, 0, 0}), {.options = {.vocabulary = 6}});
  });
  expect_refused("cross_entropy: target 5 at position 1 is not in [0, 5)", [&] {
    of(cross_entropy(logits, targets({0, 5, 0, 0, 0, 0})));
  });
}

TEST_F(Reductions, MseIsTheMeanOverAllElements) {
  const Var x = tape.input(make_tensor<double>({2, 2}, Numbers{1, 2, 3, 4}, stream));
  const Var y = tape.input(make_tensor<double>({2, 2}, Numbers{1, 4, 3, 0}, stream));
  EXPECT_EQ(of(mse(x, y)), Numbers{5});
  EXPECT_EQ(of(mse(x, y, Reduction::sum)), Numbers{10});
  EXPECT_EQ(of(mse(x, y, Reduction::none)), (Numbers{2, 8}));
  const Var row = tape.input(make_tensor<double>({4}, Numbers{0, 1, 2, 3}, stream));
  const Var zero = tape.input(make_tensor<double>({4}, Numbers(4), stream));
  EXPECT_EQ(of(mse(row, zero)), Numbers{3.5});
  EXPECT_EQ(of(mse(row, zero, Reduction::none)), Numbers{3.5});
  expect_refused("mse: x f64 (2, 2) and y f64 (4) must have the same shape and type",
                 [&] { mse(x, row); });
}

TEST_F(Reductions, PermuteMovesTheFirstDimensionToo) {
  const OpSample circle{
      .name = "circle", .inputs = {{.shape = {3, 5, 2}}}, .apply = [](const auto& x) {
        return std::vector{permute(x[0], {2, 0, 1})};
      }};
  for (const std::string& failure : check_op(circle)) ADD_FAILURE() << failure;
  const Var x = tape.input(make_tensor<double>({2, 3}, Numbers{1, 2, 3, 4, 5, 6}, stream));
  EXPECT_EQ(of(transpose(x, -2, -1)), (Numbers{1, 4, 2, 5, 3, 6}));
}

TEST_F(Reductions, PermuteIsAViewIfElementsStayInOrder) {
  const Var x = input({1, 4, 1, 3});
  for (const Var& y : {permute(x, {1, 0, 3, 2}), transpose(x, 0, 2), transpose(x, 1, 1)}) {
    EXPECT_EQ(of(y), of(x));
    EXPECT_TRUE(y.tensor().same_memory(x.tensor()));
  }
  EXPECT_EQ(permute(x, {1, 0, 3, 2}).shape(), (Shape{4, 1, 3, 1}));
}

TEST_F(Reductions, PermuteRefusesWhatIsNoOrder) {
  const Var x = input({2, 3});
  expect_refused(
      "transpose: dimension 2 of f64 (2, 3), which has 2 dimensions; 0 is the first and -1",
      [&] { transpose(x, 0, 2); });
  expect_refused("transpose: dimension -3 of f64", [&] { transpose(x, -3, 0); });
  expect_refused("permute: an order of 1 dimensions does not fit the 2 of f64 (2, 3)",
                 [&] { permute(x, {0}); });
  expect_refused("permute: dimension 1 of f64 (2, 3) is in the order twice", [&] {
    permute(x, {1, -1});
  });
}

}  // namespace
}  // namespace spool::testing
