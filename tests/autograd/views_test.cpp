// reshape(), slice() and concat(): what is copied and what shares memory, in both directions, and
// what is refused.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Numbers = std::vector<double>;

class Views : public ::testing::Test {
 protected:
  Tensor tensor(const Shape& shape) { return normal(shape, DType::f64, stream, ++seed); }
  Var input(const Shape& shape) { return tape.input(tensor(shape), /*needs_grad=*/true); }
  // Kernels launched by the work.
  template <class Work>
  uint64_t launches(const Work& work) {
    const uint64_t before = stream.launches();
    work();
    return stream.launches() - before;
  }
  static const std::byte* address(const Tensor& t) { return t.view().data(); }
  static Numbers part(const Tensor& t, size_t begin, size_t end) {
    const Numbers all = values(t);
    return {all.begin() + static_cast<int64_t>(begin), all.begin() + static_cast<int64_t>(end)};
  }

  CpuStream stream{size_t{64} << 20, 2};
  Tape tape{stream, {}};
  uint64_t seed = 0;
};

TEST_F(Views, OfAnotherShapeCopyNothing) {
  const Var x = input({4, 6});
  const Tensor dy = tensor({3, 8});
  const size_t before = stream.memory().live;
  EXPECT_EQ(launches([&] {
              const Var y = reshape(reshape(x, {2, 2, 6}), {3, 8});
              EXPECT_EQ(y.shape(), (Shape{3, 8}));
              EXPECT_TRUE(y.tensor().view().data() == address(x.tensor()));
              tape.backward({Root{y, dy}});
            }),
            0U);
  EXPECT_EQ(stream.memory().live, before);
  EXPECT_EQ(address(tape.grad(x)), address(dy));
  EXPECT_EQ(tape.grad(x).shape(), (Shape{4, 6}));
}

TEST_F(Views, AreCopiedBeforeTheyAreWrittenOver) {
  const Var x = input({4, 6});
  const Tensor dy = tensor({24}), dz = tensor({4, 6});
  const Numbers before = values(dy);
  const Var y = reshape(x, {24}), z = scale(x, 3);
  tape.backward({Root{y, dy}, Root{z, dz}});
  EXPECT_EQ(values(dy), before);
  Numbers sum = values(dz);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = 3 * sum[i] + before[i];
  EXPECT_LT(difference(values(tape.grad(x)), sum), 1e-15);
}

TEST_F(Views, OfTheFirstDimensionAreSlices) {
  const Var x = input({5, 4});
  EXPECT_EQ(launches([&] { slice(x, 0, {1, 3}); }), 0U);
  const Var y = slice(x, 0, {1, 3});
  EXPECT_EQ(y.shape(), (Shape{2, 4}));
  EXPECT_EQ(address(y.tensor()), address(x.tensor()) + 4 * sizeof(double));
  const Var one = input({1, 6, 2});  // nothing before the dimension
  EXPECT_EQ(address(slice(one, 1, {2, 4}).tensor()), address(one.tensor()) + 4 * sizeof(double));
  EXPECT_EQ(address(slice(x, 1, {0, 4}).tensor()), address(x.tensor()));
  // One that is less aligned than 16 bytes is a copy, and so is its gradient in a concat.
  const Var odd = input({5, 3});
  EXPECT_EQ(launches([&] { slice(odd, 0, {1, 3}); }), 1U);
  EXPECT_EQ(launches([&] { slice(odd, 0, {2, 3}); }), 0U);
}

TEST_F(Views, OfOtherDimensionsAreCopies) {
  const Var x = input({2, 3, 2});
  const Var y = slice(x, -2, {1, 3});
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(part(y.tensor(), 0, 4), part(x.tensor(), 2, 6));
  EXPECT_EQ(part(y.tensor(), 4, 8), part(x.tensor(), 8, 12));
}

TEST_F(Views, OfPartsAddUpToTheGradientOfTheWhole) {
  const Var x = input({6, 2});
  const Var y = concat({slice(x, 0, {4, 6}), slice(x, 0, {0, 3})}, 0);
  const Tensor dy = tensor({5, 2});
  tape.backward({Root{y, dy}});
  const Tensor dx = tape.grad(x);
  EXPECT_EQ(part(dx, 0, 6), part(dy, 4, 10));
  EXPECT_EQ(part(dx, 6, 8), (Numbers{0, 0}));
  EXPECT_EQ(part(dx, 8, 12), part(dy, 0, 4));
}

TEST_F(Views, OfRowsPassPartsOfTheGradient) {
  const Var a = input({2, 3}), b = input({4, 3});  // 48 bytes, and 96
  const Var y = concat({a, b}, 0);
  EXPECT_EQ(part(y.tensor(), 0, 6), values(a.tensor()));
  EXPECT_EQ(part(y.tensor(), 6, 18), values(b.tensor()));
  const Tensor dy = tensor({6, 3});
  EXPECT_EQ(launches([&] { tape.backward({Root{y, dy}}); }), 0U);
  EXPECT_EQ(address(tape.grad(a)), address(dy));
  EXPECT_EQ(address(tape.grad(b)), address(dy) + 6 * sizeof(double));
}

TEST_F(Views, OfColumnsPutRowsBesideEachOther) {
  const Var y = concat({input({2, 1}), input({2, 2}), input({2, 1})}, -1);
  EXPECT_EQ(y.shape(), (Shape{2, 4}));
  std::vector<Operand> eight(8, Operand(y));
  EXPECT_EQ(concat(eight, 1).shape(), (Shape{2, 32}));
  eight.emplace_back(y);
  expect_error(ErrorKind::invalid, {"concat: 9 operands", "1 to 8"}, [&] { concat(eight, 1); });
  expect_error(ErrorKind::invalid, {"concat: 0 operands"},
               [&] { concat(std::span<const Operand>(), 0); });
}

// A region of rows that are seen in other shapes: its parts have the shapes of the whole's.
TEST_F(Views, InARegionAreCutAsOthers) {
  Parameter up{.name = "up", .data = normal({12, 6}, DType::f64, stream, 50)};
  Parameter down{.name = "down", .data = normal({6, 4}, DType::f64, stream, 51)};
  const auto run = [&](Plan plan) {
    Tape own(stream, {.plan = std::move(plan)});
    const Var x = own.input(normal({4, 5, 6}, DType::f64, stream, 52), true);
    const Var h = linear(x, up);  // (4, 5, 12)
    const Var by_head = reshape(h, {4, 5, 3, 4});
    const Var y = linear(by_head, down);  // (4, 5, 3, 6)
    const Var z = add(y, relu(y));
    const Var flat = reshape(z, {4, 90});
    own.backward({Root{flat, normal({4, 90}, DType::f64, stream, 53)}});
    Numbers all = values(flat.tensor());
    for (const Tensor& t : {own.grad(x), up.grad, down.grad}) {
      for (const double g : values(t)) all.push_back(g);
    }
    up.grad = down.grad = {};
    return all;
  };
  const Numbers whole = run({});
  for (const int chunks : {2, 3, 4}) {
    const Plan plan{.regions = {{.first = 0, .last = 5, .chunks = chunks, .leaves = {8}}}};
    EXPECT_LT(difference(run(plan), whole), 1e-14) << chunks;
  }
}

TEST_F(Views, ThatDoNotFitAreRefused) {
  const Var x = input({4, 6});
  EXPECT_EQ(error_of([&] {
              reshape(x, {5, 5});
            }),
            "reshape: f64 (4, 6) has 24 elements, and (5, 5) has 25; they must have as many");
  EXPECT_EQ(
      error_of([&] {
        slice(x, 1, {2, 7});
      }),
      "slice: elements 2 to 7 of dimension 1 of f64 (4, 6); a slice begins at 0 or later, and "
      "ends at 6 or before");
  expect_error(ErrorKind::invalid, {"slice: elements 3 to 2"}, [&] { slice(x, 0, {3, 2}); });
  expect_error(ErrorKind::invalid, {"slice: elements -1 to 2"}, [&] { slice(x, 0, {-1, 2}); });
  expect_error(ErrorKind::invalid, {"slice: dimension 2 of f64 (4, 6), which has 2 dimensions"},
               [&] {
                 slice(x, 2, {0, 1});
               });
  EXPECT_EQ(error_of([&] {
              concat({x, input({4, 5}), input({3, 6})}, 0);
            }),
            "concat: f64 (4, 6), f64 (4, 5) and f64 (3, 6) along dimension 0; all must be of one "
            "type, and differ in that dimension alone");
  expect_error(ErrorKind::invalid, {"concat", "dimension -3"}, [&] { concat({x, x}, -3); });
}

TEST_F(Views, OfNothingAreEmpty) {
  const Var x = input({4, 6});
  EXPECT_EQ(slice(x, 0, {2, 2}).shape(), (Shape{0, 6}));
  const Var y = concat({slice(x, 1, {3, 3}), x}, 1);
  EXPECT_EQ(values(y.tensor()), values(x.tensor()));
  tape.backward({Root{y, tensor({4, 6})}});
  EXPECT_EQ(tape.grad(x).shape(), (Shape{4, 6}));
}

}  // namespace
}  // namespace spool::testing
