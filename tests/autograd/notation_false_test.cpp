// The tests of op notations find those that are false.

#include <cmath>

#include "spool/autograd/checks/applied_op.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"
#include "tests/autograd/op_samples.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using op_checks::applied_op;
using op_checks::AppliedOp;
using op_checks::claiming;
using op_checks::difference_of_parts;
using op_checks::find_influences;
using op_checks::leading_indices;
using op_checks::other_separable_indices;
using op_checks::PartForm;

AppliedOp sample_of(const std::string& name, bool backward_follows = false) {
  for (const OpSample& sample : op_samples()) {
    if (sample.name == name) return applied_op(sample, backward_follows);
  }
  fail(ErrorKind::invalid, "no sample is named ", name);
}

TEST(AFalseNotation, OfAttentionAlongItsTokensIsFound) {
  const AppliedOp applied = claiming(sample_of("attention"), "btP->btQ,bHt");
  EXPECT_EQ(leading_indices(applied.notation), "b");
  EXPECT_EQ(other_separable_indices(applied.notation), "t");
  const auto [outputs, gradients] = difference_of_parts(applied, {'t', 3});
  EXPECT_GT(outputs.most, 0.1);
  EXPECT_GT(gradients.most, 0.1);
  const std::string forbidden = find_influences(applied).forbidden;
  EXPECT_TRUE(contains(forbidden, "differ in t")) << forbidden;
}

TEST(AFalseNotation, OfANormAlongItsChannelsIsFound) {
  const AppliedOp applied = claiming(sample_of("layer_norm"), "nc,c,c->nc,n,n");
  const auto [outputs, gradients] = difference_of_parts(applied, {'c', 2});
  EXPECT_GT(outputs.most, 0.1);
  EXPECT_GT(gradients.most, 0.1);
  const std::string forbidden = find_influences(applied).forbidden;
  EXPECT_TRUE(contains(forbidden, "differ in c")) << forbidden;
}

// Without a loss scale, each chunk divides by the targets of its own.
TEST(AFalseNotation, OfAMeanAlongItsRowsIsFoundWithoutALossScale) {
  AppliedOp applied = sample_of("linear_cross_entropy_mean", /*backward_follows=*/true);
  applied.loss_scale = false;
  const auto [outputs, gradients] = difference_of_parts(applied, {'n', 2});
  EXPECT_GT(outputs.most, 0.1);
  EXPECT_GT(gradients.most, 0.1);
  const std::string forbidden = find_influences(applied).forbidden;
  EXPECT_TRUE(contains(forbidden, "differ in n")) << forbidden;
}

// Each chunk of a sum adds all of a bias.
TEST(AFalseNotation, OfASumWithABiasIsFound) {
  const AppliedOp applied = claiming(sample_of("linear"), "nk,ok,o->no");
  const auto [outputs, gradients] = difference_of_parts(applied, {'k', 2});
  EXPECT_GT(outputs.most, 0.1);
  EXPECT_GT(gradients.most, 0.1);
}

// An element's draw is that of its row's first element and its place in the row.
TEST(AFalseNotation, OfDropoutAlongItsColumnsIsFound) {
  const AppliedOp applied = claiming(sample_of("dropout"), "nc->nc");
  const auto [outputs, gradients] = difference_of_parts(applied, {'c', 2});
  EXPECT_GT(outputs.most, 0.1);
  EXPECT_GT(gradients.most, 0.1);
}

// y = 2x, whose backward multiplies by the sum of all of dy.
struct LooksAcrossRowsInBackward final : Op {
  const char* name() const override { return "looks_across_rows_in_backward"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Scale{.out = y, .a = x, .factor = 2});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    const Tensor sum = b.scratch({Shape{1}, dy.dtype()});
    b.launch(SumAll{.out = sum.view(), .x = dy});
    b.launch(Scale{.out = b.grad_input(0), .a = dy, .factor = 2, .by = sum});
  }
};

TEST(AFalseNotation, OfABackwardThatLooksAcrossRowsIsFound) {
  AppliedOp applied = sample_of("scale");
  applied.op = std::make_shared<LooksAcrossRowsInBackward>();
  for (const PartForm form : {PartForm::rows, PartForm::slices}) {
    const auto [outputs, gradients] = difference_of_parts(applied, {'n', 2, form});
    EXPECT_EQ(outputs.most, 0) << "its forward does not";
    EXPECT_GT(gradients.most, 0.1);
  }
  EXPECT_EQ(find_influences(applied).forbidden, "");
}

// y = x, but a part has no numbers in its rows.
struct LosesNumbersInParts final : Op {
  const char* name() const override { return "loses_numbers_in_parts"; }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    const bool is_part = f.place() && !f.place()->parts.empty();
    f.launch(Scale{.out = y, .a = x, .factor = is_part ? std::nanf("") : 1});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override { b.pass(0); }
};

TEST(AFalseNotation, OfPartsWithoutNumbersIsFound) {
  AppliedOp applied = sample_of("scale");
  applied.op = std::make_shared<LosesNumbersInParts>();
  const auto [outputs, gradients] = difference_of_parts(applied, {'n', 2});
  EXPECT_TRUE(std::isnan(outputs.most));
  EXPECT_TRUE(contains(outputs.where, "part 0 of 2 of output 0")) << outputs.where;
  EXPECT_EQ(gradients.most, 0);
}

TEST(AFalseNotation, SaysWhichPartOfWhichTensorIsWrong) {
  const AppliedOp bias = claiming(sample_of("linear"), "nk,ok,o->no");
  const auto [outputs, gradients] = difference_of_parts(bias, {'k', 2});
  EXPECT_TRUE(contains(outputs.where, "the sum of the parts of output 0, 'no'")) << outputs.where;
  EXPECT_TRUE(contains(gradients.where, "the gradient of input 2, 'o'")) << gradients.where;
}

}  // namespace
}  // namespace spool::testing
