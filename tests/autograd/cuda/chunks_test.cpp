// runs: threads
// What holds of every net with regions in chunks, on cuda.

#include "spool/kernels/elementwise.h"
#include "tests/autograd/chunks/chunks_testing.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class EveryChunkCaseOnCuda : public ::testing::TestWithParam<ChunkCase> {
 protected:
  static constexpr Device cuda{DeviceType::cuda};

  void SetUp() override {
    if (!there_is_cuda()) GTEST_SKIP() << "there is no CUDA device here";
  }
};
INSTANTIATE_TEST_SUITE_P(Case, EveryChunkCaseOnCuda, ::testing::ValuesIn(chunk_cases()),
                         [](const auto& c) { return c.param.name; });

TEST_P(EveryChunkCaseOnCuda, HasTheNumbersOfOneChunk) {
  in_every_order([&] { expect_the_numbers_of_one_chunk(GetParam(), cuda); });
}

TEST_P(EveryChunkCaseOnCuda, HasTheForetoldPeakToTheByte) {
  expect_the_foretold_peak(GetParam(), cuda);
}

TEST_P(EveryChunkCaseOnCuda, IsRefusedAGranuleBelowItsPeakAndLeaksNothing) {
  expect_a_granule_less_is_refused(GetParam(), cuda);
}

TEST_P(EveryChunkCaseOnCuda, HasTheSameBitsForAnyPlacement) {
  expect_placements_keep_the_bits(GetParam(), cuda);
}

TEST_P(EveryChunkCaseOnCuda, HasTheSameBitsInARecomputedRegion) {
  expect_recomputing_around_keeps_the_bits(GetParam(), cuda);
}

TEST_P(EveryChunkCaseOnCuda, RunsInChunksWithoutRecording) {
  expect_the_outputs_without_recording(GetParam(), cuda);
}

class ChunksOnCuda : public OnCuda {};

TEST_F(ChunksOnCuda, MatchTheCpu) {
  for (const DType dtype : cuda_types) {
    const bool narrow = dtype == DType::bf16;
    const NetOptions net{.dtype = dtype};
    for (const char* const name : {"mlp", "block", "mean_of_losses", "a_node_without_the_index"}) {
      const ChunkCase& c = chunk_case(name);
      CpuStream cpu(on_both, 1);
      const SampleValues wanted = run_case(c, cpu, {.plan = plan_of(c, 2, net)}, net);
      const auto stream = cuda_stream();
      const SampleValues found = run_case(c, *stream, {.plan = plan_of(c, 2, net)}, net);
      EXPECT_LT(largest_difference(found.outputs, wanted.outputs), narrow ? 2e-2 : 4e-6) << name;
      EXPECT_LT(largest_difference(found.gradients, wanted.gradients), narrow ? 6e-2 : 1e-5)
          << name;
    }
  }
}

// A captured step launches the same chunks again, with what its inputs have become.
TEST_F(ChunksOnCuda, CanBeCapturedInAGraph) {
  const auto stream = cuda_stream();
  if (!stream->captures()) GTEST_SKIP() << "this device does not capture graphs";
  Net net(*stream);
  const Plan plan{.regions = {{0, 6, 3, {17}}}};
  Tensor loss({Shape{1}}, *stream);
  const auto step = [&] {
    Tape tape(*stream, net.options(plan));
    const Var y = net.loss(net.mlp(tape.input(net.x)), Reduction::mean);
    launch(Add{.out = loss, .a = y.tensor()}, *stream);
    tape.backward(y);
  };
  const auto results = [&](const std::vector<Tensor>& gradients) {
    std::vector<Numbers> all{values(loss)};
    for (const Tensor& t : gradients) all.push_back(t ? values(t) : Numbers());
    return all;
  };
  step();
  net.take_gradients();
  const Graph graph = stream->capture(step);
  const std::vector<Tensor> captured = net.take_gradients();
  for (const uint64_t seed : {3u, 4u}) {
    const Numbers numbers = values(normal(net.x.shape(), DType::f32, *stream, seed));
    write<float>(net.x, std::vector<float>(numbers.begin(), numbers.end()));
    stream->replay(graph);
    const std::vector<Numbers> replayed = results(captured);
    step();
    EXPECT_EQ(results(net.take_gradients()), replayed);
  }
}

}  // namespace
}  // namespace spool::testing
