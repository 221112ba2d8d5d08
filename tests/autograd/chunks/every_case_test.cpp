// runs: threads
// What holds of every net with regions in chunks, on the cpu.

#include "tests/autograd/chunks/chunks_testing.h"

namespace spool::testing {
namespace {

class EveryChunkCase : public ::testing::TestWithParam<ChunkCase> {};
INSTANTIATE_TEST_SUITE_P(Case, EveryChunkCase, ::testing::ValuesIn(chunk_cases()),
                         [](const auto& c) { return c.param.name; });

TEST_P(EveryChunkCase, HasTheNumbersOfOneChunk) { expect_the_numbers_of_one_chunk(GetParam(), {}); }

TEST_P(EveryChunkCase, HasTheForetoldPeakToTheByte) { expect_the_foretold_peak(GetParam(), {}); }

TEST_P(EveryChunkCase, IsRefusedAGranuleBelowItsPeakAndLeaksNothing) {
  expect_a_granule_less_is_refused(GetParam(), {});
}

TEST_P(EveryChunkCase, HasTheSameBitsForAnyPlacement) {
  expect_placements_keep_the_bits(GetParam(), {});
}

TEST_P(EveryChunkCase, HasTheSameBitsInARecomputedRegion) {
  expect_recomputing_around_keeps_the_bits(GetParam(), {});
}

TEST_P(EveryChunkCase, RunsInChunksWithoutRecording) {
  expect_the_outputs_without_recording(GetParam(), {});
}

}  // namespace
}  // namespace spool::testing
