// runs: numbers
// Gradients of what a region in chunks reads: their types, sums, rounding and memory.

#include <algorithm>

#include "spool/kernels/bias.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

using AllValues = std::vector<std::vector<double>>;

AllValues values_of(const std::vector<Tensor>& tensors) {
  AllValues all;
  for (const Tensor& t : tensors) all.push_back(t ? values(t) : std::vector<double>());
  return all;
}

AllValues times(double factor, AllValues all) {
  for (std::vector<double>& tensor : all) {
    for (double& x : tensor) x *= factor;
  }
  return all;
}

Tensor as_f64(const Tensor& t) {
  const std::vector<double> all = values(t);
  return make_tensor<double>(t.shape(), all, t.stream());
}

// linear, gelu, linear: all of it is the region.
class GradientsOfBf16 : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};
  static constexpr int64_t N = 512, C = 24;
  Tensor x = normal({N, C}, DType::bf16, stream, 1), dy = normal({N, C}, DType::bf16, stream, 2);
  Parameter fc{.name = "fc", .data = normal({C, C}, DType::bf16, stream, 3, 0.2)};
  Parameter proj{.name = "proj", .data = normal({C, C}, DType::bf16, stream, 4, 0.2)};

  static Var apply_to(const Var& h, Parameter& first, Parameter& second) {
    return linear(gelu(linear(h, first)), second);
  }
  static Plan plan(int chunks) {
    return {.regions = {{.first = 0, .last = 2, .chunks = chunks, .leaves = {5}}}};
  }
  std::vector<Tensor> gradients(const TapeOptions& how) {
    Tape tape(stream, how);
    tape.backward({Root{apply_to(tape.input(x), fc, proj), dy}});
    return {std::exchange(fc.grad, {}), std::exchange(proj.grad, {})};
  }
  AllValues exact() {
    Parameter first{.data = as_f64(fc.data)}, second{.data = as_f64(proj.data)};
    Tape tape(stream);
    tape.backward({Root{apply_to(tape.input(as_f64(x)), first, second), as_f64(dy)}});
    return values_of({first.grad, second.grad});
  }
};

TEST_F(GradientsOfBf16, AreRoundedOnceFromTheSumOfChunks) {
  const AllValues wanted = exact();
  const double error = largest_difference(values_of(gradients({})), wanted);
  EXPECT_GT(error, 0);
  for (const int chunks : {2, 4, 8, 16, 64}) {
    const std::vector<Tensor> found = gradients({.plan = plan(chunks)});
    for (const Tensor& t : found) EXPECT_EQ(t.dtype(), DType::bf16);
    EXPECT_LE(largest_difference(values_of(found), wanted), 1.2 * error) << chunks;
  }
}

TEST_F(GradientsOfBf16, AreSumsInF32WithMicroBatches) {
  const AllValues whole = values_of(gradients({.micro_batches = 2}));
  const std::vector<Tensor> found = gradients({.plan = plan(4), .micro_batches = 2});
  for (const Tensor& t : found) EXPECT_EQ(t.dtype(), DType::f32);
  EXPECT_LT(largest_difference(values_of(found), whole), 1e-5);
}

TEST_F(GradientsOfBf16, AreAddedToOnesOfTheSameType) {
  const AllValues once = values_of(gradients({.plan = plan(4)}));
  for (int time = 0; time < 2; ++time) {
    Tape tape(stream, {.plan = plan(4)});
    tape.backward({Root{apply_to(tape.input(x), fc, proj), dy}});
  }
  EXPECT_EQ(fc.grad.dtype(), DType::bf16);
  EXPECT_EQ(values_of({fc.grad, proj.grad}), times(2, once));
}

// The allocations of a step on meta: a linear, then the region, of bf16.
Lifetimes lifetimes_of_step(const TapeOptions& how, bool tied) {
  MetaStream stream{Machine{}};
  const auto tensor = [&](const Shape& shape) { return Tensor({shape, DType::bf16}, stream); };
  Parameter before{.name = "before", .data = tensor({8, 8})}, fc{.data = tensor({8, 8})},
      proj{.data = tensor({8, 8})};
  const Tensor x = tensor({64, 8}), dy = tensor({64, 8});
  const AllocationLog log(stream.arena());
  {
    Tape tape(stream, how);
    const Var y = linear(gelu(linear(linear(tape.input(x), before), fc)), tied ? fc : proj);
    tape.backward({Root{y, dy}});
    for (Parameter* const p : {&before, &fc, &proj}) p->grad = {};
  }
  return log.lifetimes();
}

std::vector<Lifetime> gradients_named(const Lifetimes& lifetimes, std::string_view name) {
  std::vector<Lifetime> some;
  std::ranges::copy_if(lifetimes.all, std::back_inserter(some), [&](const Lifetime& l) {
    return l.label.purpose == Purpose::gradient && l.label.name == name;
  });
  return some;
}

Plan region_behind_a_linear(bool tied) {
  return {.regions = {{.first = 1, .last = 3, .chunks = 4, .leaves = {tied ? 6 : 7}}}};
}

TEST(SumsOfChunks, LiveAsLongAsTheBackwardOfTheRegion) {
  const Lifetimes all = lifetimes_of_step({.plan = region_behind_a_linear(false)}, false);
  const std::vector<Lifetime> sums = gradients_named(all, "sum of chunks");
  ASSERT_EQ(sums.size(), 2u) << "for two weights";
  const std::vector<Lifetime> before = gradients_named(all, "before");
  ASSERT_EQ(before.size(), 1u);
  for (const Lifetime& sum : sums) EXPECT_LT(sum.death, before[0].birth);
}

TEST(SumsOfChunks, AreTheGradientsWhereThoseAreF32) {
  const TapeOptions micro{.plan = region_behind_a_linear(false), .micro_batches = 2};
  EXPECT_TRUE(gradients_named(lifetimes_of_step(micro, false), "sum of chunks").empty());
  const TapeOptions tied{.plan = region_behind_a_linear(true)};
  EXPECT_TRUE(gradients_named(lifetimes_of_step(tied, true), "sum of chunks").empty());
}

// The sum over rows.
struct ColumnSum final : Op {
  const char* name() const override { return "column_sum"; }
  const char* indices() const override { return "nc->c"; }
  Specs infer(const Specs& in) const override { return {{{in[0].shape[-1]}, in[0].dtype}}; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(BiasBackward{.dbias = y, .dy = x});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward&) const override {}
};

TEST(SumsOfChunks, ThatAreLeavesAreFormedInF32AndRoundedOnce) {
  CpuStream stream(chunk_memory, 2);
  const std::vector<float> ones(512 * 4, 1.0f);  // bf16 has no 257
  const std::vector<bf16> all(ones.begin(), ones.end());
  const Tensor x = make_tensor<bf16>({512, 4}, all, stream);
  for (const int chunks : {2, 8, 64, 512}) {
    Tape tape(stream, {.plan = {.regions = {{0, 0, chunks, {1}}}}, .recording = false});
    const Var y = apply<ColumnSum>(tape, {tape.input(x)});
    EXPECT_EQ(y.spec().dtype, DType::bf16);
    EXPECT_EQ(values(y.tensor()), std::vector<double>(4, 512)) << chunks;
  }
}

class GradientsOfChunks : public ::testing::Test {
 protected:
  CpuStream stream{chunk_memory, 2};

  // The loss of rows [begin, end) of the batch, with a region in chunks if there are several.
  static Var loss_of_rows(Tape& tape, Net& net, Range rows) {
    const Var y = net.mlp(tape.input(net.x.slice(rows)));
    return linear_cross_entropy(y, net.head, tape.input(net.targets.slice(rows)));
  }
  static Plan loss_in_chunks(int chunks) { return plan_of(chunk_case("mean_of_losses"), chunks); }
};

TEST_F(GradientsOfChunks, AccumulateOverMicroBatchesToThoseOfOneBatch) {
  Net net(stream, {.B = 6});
  const auto gradients = [&](int micro_batches, const Plan& plan) {
    const int64_t rows = 6 / micro_batches;
    for (int64_t first = 0; first < 6; first += rows) {
      TapeOptions how = net.options(plan);
      how.micro_batches = micro_batches;
      how.first_row = first;
      Tape tape(stream, how);
      tape.backward(loss_of_rows(tape, net, {first, first + rows}));
    }
    return values_of(net.take_gradients());
  };
  const AllValues whole = gradients(1, {});
  Plan plan = loss_in_chunks(4);
  plan.regions[0].leaves = {17};  // x and targets are its only inputs
  for (const int micro_batches : {1, 2, 3}) {
    EXPECT_LT(largest_difference(gradients(micro_batches, plan), whole), 1e-5) << micro_batches;
  }
}

TEST_F(GradientsOfChunks, AreSevenTimesAsLargeForSevenTimesTheLoss) {
  for (const char* const name : {"sum_of_losses", "mean_of_losses"}) {
    const ChunkCase& c = chunk_case(name);
    ChunkCase seven = c;
    seven.apply = [&](Net& n, const Var& x, const Var& w) {
      return std::vector<Var>{scale(c.apply(n, x, w)[0], 7)};
    };
    for (const int chunks : {2, 3, 5}) {
      const AllValues once = run_case(c, stream, {.plan = plan_of(c, chunks)}).gradients;
      const AllValues found = run_case(seven, stream, {.plan = plan_of(c, chunks)}).gradients;
      EXPECT_LT(largest_difference(found, times(7, once)), 1e-6) << name << ", " << chunks;
    }
  }
}

TEST_F(GradientsOfChunks, LackThoseOfFrozenParameters) {
  const ChunkCase& c = chunk_case("mlp");
  const auto gradients = [&](const Plan& plan) {
    CaseRun run(c, stream, {.plan = plan});
    run.net().fc.trainable = run.net().norm_bias.trainable = false;
    run.forward();
    run.backward();
    return values_of(run.take_gradients());
  };
  const AllValues whole = gradients({}), found = gradients(plan_of(c, 3));
  EXPECT_LT(largest_difference(found, whole), 1e-5);
  EXPECT_TRUE(found[1].empty() && found[2].empty());
  EXPECT_FALSE(found[0].empty());
}

TEST_F(GradientsOfChunks, LackThatOfAnInputThatNeedsNone) {
  const NetOptions net{.x_needs_grad = false};
  for (const char* const name : {"mlp", "block", "mean_of_losses"}) {
    const ChunkCase& c = chunk_case(name);
    const SampleValues whole = run_case(c, stream, {}, net);
    const SampleValues found = run_case(c, stream, {.plan = plan_of(c, 2, net)}, net);
    EXPECT_LT(largest_difference(found.gradients, whole.gradients), 1e-5) << name;
    EXPECT_TRUE(found.gradients[10].empty());
  }
}

TEST_F(GradientsOfChunks, DoNotExistWhereNothingNeedsOne) {
  Net net(stream);
  Tape tape(stream, net.options({.regions = {{0, 0, 3, {1}}, {1, 2, 3, {4}}}}));
  const Var y = linear(gelu(gelu(tape.input(net.x))), net.square);
  tape.backward({Root{y, normal(y.shape(), DType::f32, stream, 9)}});
  EXPECT_TRUE(bool(net.square.grad));
}

// Only one of two leaves has a gradient; or the region has none at all.
TEST_F(GradientsOfChunks, ComeFromTheLeavesThatHaveOne) {
  const auto gradients = [&](const Plan& plan, bool through_b) {
    Net net(stream);
    Tape tape(stream, net.options(plan));
    const Var x = tape.input(net.x, true);
    const Var a = linear(x, net.square), b = linear(gelu(a), net.square), c = gelu(x);
    EXPECT_TRUE(a.is_readable());
    const Var y = through_b ? add(b, c) : add(a, c);
    tape.backward({Root{y, normal(y.shape(), DType::f32, stream, 9)}});
    return values_of({std::exchange(net.square.grad, {}), tape.grad(x)});
  };
  // x, weight, a, gelu, b.
  const Plan plan{.regions = {{0, 2, 3, {2, 4}}}};
  for (const bool through_b : {false, true}) {
    EXPECT_LT(largest_difference(gradients(plan, through_b), gradients({}, through_b)), 1e-5);
  }
}

}  // namespace
}  // namespace spool::testing
