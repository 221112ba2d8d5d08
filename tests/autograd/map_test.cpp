// map() and the ops made by it: what they save, how they broadcast, and what is refused.

#include "spool/autograd/ops/map.h"

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/autograd/samples/functors.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using Numbers = std::vector<double>;

class Maps : public ::testing::Test {
 protected:
  Var input(const Shape& shape, bool needs_grad = true, DType type = DType::f64) {
    return tape.input(normal(shape, type, stream, ++seed), needs_grad);
  }
  Var numbers(const Shape& shape, const Numbers& all) {
    return tape.input(make_tensor<double>(shape, all, stream), /*needs_grad=*/true);
  }
  // The values that the last op saves.
  std::vector<ValueId> saved() const {
    const auto& saves = tape.nodes()[tape.nodes().next_id() - 1].saves;
    return {saves.begin(), saves.end()};
  }
  using Ids = std::vector<ValueId>;

  CpuStream stream{size_t{64} << 20, 2};
  Tape tape{stream, {}};
  uint64_t seed = 0;
};

TEST_F(Maps, SaveWhatTheirDerivativesRead) {
  const Var x = input({3, 4}), y = input({3, 4}), constant = input({3, 4}, /*needs_grad=*/false);
  EXPECT_EQ((silu(x), saved()), Ids{x.id()});
  EXPECT_EQ((square(x), saved()), Ids{x.id()});
  EXPECT_EQ((log(x), saved()), Ids{x.id()});
  for (Var (*op)(const Operand&) : {relu, sigmoid, tanh, exp}) {
    const Var result = op(x);
    EXPECT_EQ(saved(), Ids{result.id()});
  }
  EXPECT_EQ((mul(x, y), saved()), (Ids{x.id(), y.id()}));
  EXPECT_EQ((mul(x, constant), saved()), Ids{constant.id()});
  EXPECT_EQ((mul(constant, x), saved()), Ids{constant.id()});
  EXPECT_EQ((mul(constant, constant), saved()), Ids{});
  EXPECT_EQ((sub(x, y), saved()), Ids{});
  EXPECT_EQ((div(x, constant), saved()), Ids{constant.id()});
  const Var quotient = div(constant, x);
  EXPECT_EQ(saved(), (Ids{x.id(), quotient.id()}));
}

TEST_F(Maps, BroadcastRowsColumnsAndNumbers) {
  const Var x = numbers({2, 3}, {1, 2, 3, 4, 5, 6});
  const Var row = numbers({3}, {10, 20, 30}), column = numbers({2, 1}, {100, 200});
  const Var number = numbers({1}, {1000});
  EXPECT_EQ(values(add(x, row).tensor()), (Numbers{11, 22, 33, 14, 25, 36}));
  EXPECT_EQ(values(sub(row, x).tensor()), (Numbers{9, 18, 27, 6, 15, 24}));
  EXPECT_EQ(values(mul(column, x).tensor()), (Numbers{100, 200, 300, 800, 1000, 1200}));
  EXPECT_EQ(values(div(number, number).tensor()), Numbers{1});
  const Var y = map(MulAdd(), x, number, row);
  EXPECT_EQ(values(y.tensor()), (Numbers{1010, 2020, 3030, 4010, 5020, 6030}));
  tape.backward({Root{y, numbers({2, 3}, {1, 1, 1, 1, 1, 2}).tensor()}});
  EXPECT_EQ(values(tape.grad(x)), (Numbers{1000, 1000, 1000, 1000, 1000, 2000}));
  EXPECT_EQ(values(tape.grad(row)), (Numbers{2, 2, 3}));
  EXPECT_EQ(values(tape.grad(number)), Numbers{27});
}

TEST_F(Maps, OfNoElementsHaveGradientsOfZero) {
  const Var row = input({4}), number = input({1}), x = input({0, 4});
  const Var y = mul(mul(x, row), number);
  EXPECT_EQ(y.shape(), (Shape{0, 4}));
  tape.backward({Root{y, Tensor(y.spec(), stream)}});
  EXPECT_EQ(values(tape.grad(row)), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(values(tape.grad(number)), Numbers{0});
}

TEST_F(Maps, OfRowsWithoutElementsHaveGradientsOfZero) {
  const Var column = input({3, 1}), x = input({3, 0}), number = input({1});
  const Var y = mul(mul(x, column), number);
  EXPECT_EQ(y.shape(), (Shape{3, 0}));
  tape.backward({Root{y, Tensor(y.spec(), stream)}});
  EXPECT_EQ(values(tape.grad(column)), (Numbers{0, 0, 0}));
  EXPECT_EQ(values(tape.grad(number)), Numbers{0});
}

TEST_F(Maps, HaveTheShapeOfMoreDimensions) {
  EXPECT_EQ(add(input({4}), input({1, 4})).shape(), (Shape{1, 4}));
  EXPECT_EQ(add(input({1, 4}), input({4})).shape(), (Shape{1, 4}));
}

TEST_F(Maps, ReluKeepsNaN) {
  const Var y = relu(numbers({3}, {std::nan(""), -1, 2}));
  EXPECT_TRUE(std::isnan(values(y.tensor())[0]));
  EXPECT_EQ(values(y.tensor())[1], 0);
}

TEST_F(Maps, TakeParametersWhereverValues) {
  Parameter a{.name = "a", .data = normal({3, 4}, DType::f64, stream, 1)};
  Parameter b{.name = "b", .data = normal({4}, DType::f64, stream, 2)};
  expect_error(ErrorKind::invalid,
               {"mul: of its operands none is a value", "tape.input(parameter)"},
               [&] { mul(a, b); });
  expect_error(ErrorKind::invalid, {"exp: of its operands none"}, [&] { exp(a); });
  const Var in = tape.input(b), y = mul(a, in);
  tape.backward({Root{y, normal({3, 4}, DType::f64, stream, 3)}});
  EXPECT_EQ(values(a.grad).size(), 12U);
  EXPECT_EQ(values(b.grad).size(), 4U);
  EXPECT_EQ(values(tape.grad(in)), values(b.grad));
}

TEST_F(Maps, RefuseAParameterAsARoot) {
  Parameter p{.name = "p", .data = normal({1}, DType::f64, stream, 1)};
  const Var in = tape.input(p);
  expect_error(ErrorKind::invalid, {"backward: a root is a parameter"}, [&] { tape.backward(in); });
}

// The gradient of a bf16 parameter is f32 here.
TEST_F(Maps, AndOtherOpsTakeAParameterAsTheFirstOperand) {
  const auto make = [&](const Shape& shape) {
    return Parameter{.name = "p", .data = normal(shape, DType::bf16, stream, ++seed)};
  };
  Parameter p = make({4, 8}), weight = make({8}), bias = make({8}), up = make({8, 8});
  Tape own(stream, {.micro_batches = 2});
  const Var in = own.input(p);
  Var x = layer_norm(in, weight, bias);
  for (const Var& y : {gelu(in), scale(in, 2), softmax(in), linear(in, up), silu(in),
                       reshape(in, {4, 8}), concat({slice(in, 0, {2, 4}), slice(in, 0, {0, 2})}, 0),
                       transpose(transpose(in, 0, 1), 0, 1), matmul(in, up)}) {
    x = add(x, y);
  }
  own.backward({Root{x, normal({4, 8}, DType::bf16, stream, ++seed)}});
  EXPECT_EQ(p.grad.dtype(), DType::f32);
}

TEST_F(Maps, OfShapesThatDoNotBroadcastAreRefused) {
  EXPECT_EQ(
      error_of([&] {
        mul(input({4, 3}), input({2}));
      }),
      "mul: f64 (4, 3) and f64 (2) do not broadcast; beside (4, 3) an operand can be (4, 3), a "
      "row (3), a number for each row (4, 1), or one number (1); see reshape");
  expect_error(ErrorKind::invalid, {"add: f64 (4, 3) and f64 (4)", "(4, 1)"}, [&] {
    add(input({4, 3}), input({4}));
  });
  expect_error(ErrorKind::invalid, {"mul_add: f64 (2, 2), f64 (2, 2) and f64 (3)"}, [&] {
    map(MulAdd(), input({2, 2}), input({2, 2}), input({3}));
  });
  expect_error(ErrorKind::invalid, {"sub: f64 (2, 1) and f64 (3)"}, [&] {
    sub(input({2, 1}), input({3}));
  });
  // An operand with as many rows, but of other dimensions.
  expect_error(ErrorKind::invalid, {"mul: f64 (2, 3, 4) and f64 (3, 2, 1)"}, [&] {
    mul(input({2, 3, 4}), input({3, 2, 1}));
  });
}

TEST_F(Maps, OfUnlikeTypesAreRefused) {
  expect_error(ErrorKind::invalid, {"div: f64 (3) and f32 (3) are of several types", "Cast"},
               [&] { div(input({3}), input({3}, true, DType::f32)); });
  const Tensor ids({Shape{3}, DType::i32}, stream);
  expect_error(ErrorKind::invalid, {"relu: i32 (3) is not of a type that is computed in"},
               [&] { relu(tape.input(ids)); });
  expect_error(ErrorKind::invalid, {"absent Var"}, [&] { tanh(Var()); });
}

TEST_F(Maps, HaveTheAttributesOfTheirFunctorAndAKind) {
  const Var x = input({2, 3});
  map(FourInputs{.scale = 0.25}, x, x, x, x);
  const Op& op = *tape.nodes()[0].op;
  EXPECT_EQ(op.attributes(), "scale 0.25");
  EXPECT_EQ(op.kind(), OpKind::other);
  silu(x);
  EXPECT_EQ(tape.nodes()[1].op->kind(), OpKind::activation);
}

}  // namespace
}  // namespace spool::testing
