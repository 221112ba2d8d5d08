// runs: threads
// SPOOL_CHECK=1, with which all tests of this program run: an op that does not write a gradient, or
// asks for it twice or never, is found.

#include "spool/autograd/checks/gradient_check.h"

#include <cstdlib>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

const bool checked = ::setenv("SPOOL_CHECK", "1", /*overwrite=*/1) == 0;

// y = a + b, whose backward is wrong in one way.
struct Faulty final : Op {
  enum Fault { none, unwritten, last_row_unwritten, twice, twice_over, passed_and_asked, never };
  Fault fault;
  explicit Faulty(Fault f) : fault(f) {}

  const char* name() const override { return "faulty"; }
  const char* indices() const override { return "nc,nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [a, b] = f.inputs<2>();
    f.launch(Add{.out = f.outputs<1>()[0], .a = a, .b = b});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    const View dy = b.grad_output(0);
    const Range rows{0, dy.shape()[0] - (fault == last_row_unwritten)};
    if (fault == twice_over) b.launch(Scale{.out = b.grad_input_over(0, 0), .a = dy});
    const Grad da = b.grad_input(0);
    if (fault != unwritten) b.launch(Scale{.out = da.slice(rows), .a = dy.slice(rows)});
    if (fault == twice) b.grad_input(0);
    if (fault == passed_and_asked) b.pass(0);
    if (fault != never) b.pass(1);
  }
};

class GradientChecks : public ::testing::TestWithParam<DType> {
 protected:
  CpuStream stream{size_t{1} << 20, 2};

  std::string sentence_of(Faulty::Fault fault) {
    const Spec spec{{6, 7}, GetParam()};
    const Tensor a = normal(spec.shape, spec.dtype, stream, 1),
                 b = normal(spec.shape, spec.dtype, stream, 2);
    const std::string sentence = error_of([&] {
      Tape tape(stream);
      const Var x = tape.input(a, true), y = tape.input(b, true);
      tape.backward({Root{scale(apply<Faulty>(tape, {x, y}, fault), 2), a}});
    });
    stream.synchronize();
    return sentence;
  }
};
INSTANTIATE_TEST_SUITE_P(Type, GradientChecks,
                         ::testing::Values(DType::bf16, DType::f32, DType::f64),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST_P(GradientChecks, FindWhatAnOpDoesNotWriteOrAsksForTwiceOrNever) {
  ASSERT_TRUE(checked);
  const auto expect = [&](Faulty::Fault fault, const std::string& words) {
    const std::string sentence = sentence_of(fault);
    EXPECT_TRUE(contains(sentence, "faulty: ") && contains(sentence, words)) << sentence;
  };
  EXPECT_EQ(sentence_of(Faulty::none), "");
  expect(Faulty::unwritten, "element 0 of the gradient of input 0");
  expect(Faulty::last_row_unwritten, "element 35 of the gradient of input 0");
  expect(Faulty::twice, "asks twice for the gradient of input 0");
  expect(Faulty::twice_over, "asks twice for the gradient of input 0");
  expect(Faulty::passed_and_asked, "asks twice for the gradient of input 0");
  expect(Faulty::never, "never asks for the gradient of input 1");
}

TEST_P(GradientChecks, AnArithmeticNaNIsNoFault) {
  const std::vector<float> nan(4, std::numeric_limits<float>::quiet_NaN());
  const Tensor x = make_tensor<float>({4}, nan, stream);
  Tape tape(stream);
  const Var v = tape.input(x, true);
  tape.backward({Root{gelu(v), x}});
  EXPECT_TRUE(std::isnan(values(tape.grad(v)).front()));
}

}  // namespace
}  // namespace spool::testing
