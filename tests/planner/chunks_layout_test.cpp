// Layouts of steps with regions in chunks: chunks between the first and the last have the same
// offsets, and the step has the bits of one without a layout.

#include "spool/planner/offsets.h"
#include "spool/runtime/memory/allocation_log.h"
#include "spool/runtime/meta/stream.h"
#include "tests/autograd/chunks/chunks_testing.h"
#include "tests/planner/layout_testing.h"

namespace spool::testing {
namespace {

class LayoutsOfChunks : public ::testing::TestWithParam<ChunkCase> {
 protected:
  static Layout layout_of(const ChunkCase& c, const Plan& plan, const Architecture& architecture) {
    MetaStream meta({.architecture = architecture});
    const AllocationLog log(meta.arena());
    step_of(c)(meta, {.plan = plan});
    return assign_offsets(log.lifetimes());
  }
  static std::vector<std::vector<double>> results(const ChunkCase& c, const Plan& plan,
                                                  Stream& stream) {
    std::vector<std::vector<double>> all;
    for (const Tensor& t : step_of(c)(stream, {.plan = plan})) {
      all.push_back(t ? values(t) : std::vector<double>());
    }
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Case, LayoutsOfChunks, ::testing::ValuesIn(chunk_cases()),
                         [](const auto& c) { return c.param.name; });

TEST_P(LayoutsOfChunks, KeepTheBits) {
  const ChunkCase& c = GetParam();
  CpuStream plain(chunk_memory, 2);
  for (const int chunks : {2, static_cast<int>(c.extent)}) {
    const Plan plan = plan_of(c, chunks);
    const std::optional<Layout> layout = layout_of(c, plan, plain.architecture());
    expect_apart(*layout);
    CpuStream stream(layout->bytes, 2);
    PlacedStep placed(stream.arena(), layout);
    EXPECT_EQ(results(c, plan, stream), results(c, plan, plain)) << chunks;
    placed.finish();
  }
}

TEST_P(LayoutsOfChunks, HaveOneSetOfOffsetsForAllChunksBetween) {
  const ChunkCase& c = GetParam();
  if (c.extent < 10) return;
  const CpuStream cpu(Arena::granule, 2);
  const Layout five = layout_of(c, plan_of(c, 5), cpu.architecture());
  const Layout ten = layout_of(c, plan_of(c, 10), cpu.architecture());
  EXPECT_EQ(five.offsets.size(), ten.offsets.size());
}

}  // namespace
}  // namespace spool::testing
