// runs: threads
// Properties of every op, on every sample of the table.

#include <algorithm>
#include <cmath>

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/sample_run.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{256} << 20;

class EveryOp : public ::testing::TestWithParam<OpSample> {};
INSTANTIATE_TEST_SUITE_P(Op, EveryOp, ::testing::ValuesIn(op_samples()),
                         [](const auto& sample) { return sample.param.name; });

using Values = std::vector<std::vector<double>>;

SampleValues run(const OpSample& sample, const SampleOptions& options, int threads = 1) {
  CpuStream stream(plenty, threads);
  return run_sample(sample, stream, options);
}

double difference(const Values& a, const Values& b) {
  double worst = 0;
  check(a.size() == b.size(), "difference: ", a.size(), " tensors against ", b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = testing::difference(a[i], b[i]);
    if (std::isnan(d)) return d;
    worst = std::max(worst, d);
  }
  return worst;
}

TEST_P(EveryOp, ItsGradientIsThatOfFiniteDifferences) {
  CpuStream stream(plenty, 1);
  SampleRun run(GetParam(), stream);
  run.forward();
  run.backward();
  const Values gradients = run.gradients();
  const double h = 1e-5;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (GetParam().inputs[i].below > 0) continue;
    std::vector<double> x = values(run.inputs()[i]), numeric(x.size());
    for (size_t k = 0; k < x.size(); ++k) {
      const double before = x[k];
      const auto sum_at = [&](double at) {
        x[k] = at;
        write<double>(run.inputs()[i], x);
        run.rewind();
        run.forward();
        return run.weighted_sum();
      };
      numeric[k] = (sum_at(before + h) - sum_at(before - h)) / (2 * h);
      sum_at(before);
    }
    EXPECT_LT(testing::difference(gradients[i], numeric), 2e-8) << "input " << i;
  }
}

TEST_P(EveryOp, MetaForetellsItsPeakToTheByte) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto work = [&](Stream& stream) {
      SampleRun run(GetParam(), stream, {.dtype = dtype});
      run.forward();
      run.backward();
    };
    MetaStream meta(Machine{.architecture = CpuArchitecture{.threads = 2}});
    work(meta);
    EXPECT_EQ(meta.memory().live, 0u);
    EXPECT_GT(meta.now(), 0);
    const size_t foretold = meta.memory().peak;
    CpuStream stream(foretold, 2);
    work(stream);
    EXPECT_EQ(stream.memory().peak, foretold) << name(dtype);
    EXPECT_EQ(stream.memory().live, 0u);
    stream.synchronize();
  }
}

TEST_P(EveryOp, RecomputingKeepsItsBits) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    CpuStream stream(plenty, 2);
    const auto gradients = [&](const Plan& plan, uint64_t& launches) {
      SampleRun run(GetParam(), stream,
                    {.dtype = dtype, .tape = {.plan = plan}, .through_gelu = true});
      const uint64_t before = stream.launches();
      run.forward();
      run.backward();
      launches = stream.launches() - before;
      return run.gradients();
    };
    uint64_t keeping = 0, recomputing = 0;
    const Values kept = gradients({}, keeping);
    const Plan plan{.placement = std::vector(64, Placement::recompute)};
    EXPECT_EQ(gradients(plan, recomputing), kept) << name(dtype);
    EXPECT_GT(recomputing, keeping);
  }
}

TEST_P(EveryOp, AbsentGradientsLeaveTheOthersUnchanged) {
  const OpSample& sample = GetParam();
  const auto has_gradient = [](const SampleInput& input) { return input.below == 0; };
  if (std::ranges::count_if(sample.inputs, has_gradient) == 1) return;
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const SampleValues all = run(sample, {.dtype = dtype});
    for (size_t without = 0; without < sample.inputs.size(); ++without) {
      if (!has_gradient(sample.inputs[without])) continue;
      SampleValues expected = all;
      expected.gradients[without].clear();
      const SampleOptions options{.dtype = dtype, .without_gradient = static_cast<int>(without)};
      EXPECT_EQ(run(sample, options), expected) << "without input " << without;
    }
  }
}

TEST_P(EveryOp, BitsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const SampleValues one = run(GetParam(), {.dtype = dtype}, 1);
    for (const int threads : {2, 5}) EXPECT_EQ(run(GetParam(), {.dtype = dtype}, threads), one);
  }
}

// Large enough that every loop, product and attention tile has several pieces.
std::vector<OpSample> large_samples() {
  const auto matrix = [](int64_t rows, int64_t columns) { return Shape{rows, columns}; };
  const SampleInput x{.shape = matrix(600, 300)}, tokens{.shape = {600}, .below = 400};
  const SampleInput weight{.shape = matrix(400, 300), .parameter = true};
  const SampleInput channels{.shape = {300}, .parameter = true};
  using Operands = std::vector<Operand>;
  return {
      {"gelu", {x}, [](const Operands& in) { return std::vector{gelu(*in[0].var)}; }},
      {"dropout", {x}, [](const Operands& in) { return std::vector{dropout(*in[0].var, 0.3f)}; }},
      {"linear",
       {x, weight, {.shape = {400}, .parameter = true}},
       [](const Operands& in) { return std::vector{linear(*in[0].var, in[1], in[2])}; }},
      {"layer_norm",
       {x, channels, channels},
       [](const Operands& in) { return std::vector{layer_norm(*in[0].var, in[1], in[2])}; }},
      {"embedding",
       {{.shape = {2, 300}, .below = 400}, weight},
       [](const Operands& in) { return std::vector{embedding(*in[0].var, in[1])}; }},
      {"attention",
       {{.shape = {2, 200, 5 * 64}}},
       [](const Operands& in) {
         return std::vector{attention(*in[0].var, {.query = 3, .key = 1})};
       }},
      {"linear_cross_entropy",
       {x, weight, tokens},
       [](const Operands& in) {
         return std::vector{linear_cross_entropy(*in[0].var, in[1], *in[2].var, {})};
       }},
  };
}

TEST(LargeOp, BitsDoNotDependOnTheNumberOfThreads) {
  for (const OpSample& sample : large_samples()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const SampleValues one = run(sample, {.dtype = dtype}, 1);
      for (const int threads : {2, 5}) {
        EXPECT_TRUE(run(sample, {.dtype = dtype}, threads) == one)
            << sample.name << ", " << threads;
      }
    }
  }
}

TEST_P(EveryOp, IsCloseToF64InNarrowTypes) {
  const SampleValues exact = run(GetParam(), {.dtype = DType::f64});
  const SampleValues f32 = run(GetParam(), {.dtype = DType::f32});
  const SampleValues narrow = run(GetParam(), {.dtype = DType::bf16});
  EXPECT_LT(difference(f32.outputs, exact.outputs), 2e-6);
  EXPECT_LT(difference(f32.gradients, exact.gradients), 4e-6);
  EXPECT_LT(difference(narrow.outputs, exact.outputs), 4e-2);
  EXPECT_LT(difference(narrow.gradients, exact.gradients), 6e-2);
}

TEST_P(EveryOp, ChunksChangeNothingButRounding) {
  for (int chunks = 2; chunks <= GetParam().chunks; ++chunks) {
    SampleOptions options;
    const SampleValues whole = run(GetParam(), options);
    options.tape.plan.chunks.assign(8, chunks);
    const SampleValues cut = run(GetParam(), options);
    EXPECT_LT(difference(cut.outputs, whole.outputs), 1e-14) << chunks;
    EXPECT_LT(difference(cut.gradients, whole.gradients), 1e-14) << chunks;
  }
}

}  // namespace
}  // namespace spool::testing
