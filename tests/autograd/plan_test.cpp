// Plans that no tape can follow.

#include "spool/autograd/plan.h"

#include "spool/autograd/tape.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

void expect_refused(std::initializer_list<std::string_view> words, const Plan& plan,
                    int line = __builtin_LINE()) {
  CpuStream stream(size_t{1} << 20, 1);
  expect_error(
      ErrorKind::invalid, words, [&] { const Tape tape(stream, {.plan = plan}); }, __FILE__, line);
}

TEST(Plan, IsRefusedByATapeIfNoTapeCouldFollowIt) {
  expect_refused({"plan: regions", "-1 to 2"}, {.regions = {{.first = -1, .last = 2}}});
  expect_refused({"plan: offloads", "value -4"}, {.offloads = {{.value = -4}}});
  expect_refused({"plan: offloads", "node -7"},
                 {.placement = {Placement::offload}, .offloads = {{.value = 0, .release = -7}}});
  expect_refused({"plan: chunks", "node 1", "-2"}, {.chunks = {1, -2}});
}

Region in_chunks(NodeId first, NodeId last, std::vector<ValueId> leaves) {
  return {.first = first, .last = last, .chunks = 8, .leaves = std::move(leaves)};
}

TEST(Plan, ARegionHasAtLeastOneChunkAndLeavesIfItHasMore) {
  const std::string_view where = "plan: regions: nodes 7 to 12";
  expect_refused({where, "cannot run in 0 chunks; 1 recomputes"},
                 {.regions = {{.first = 7, .last = 12, .chunks = 0}}});
  expect_refused({where, "cannot run in -3 chunks"},
                 {.regions = {{.first = 7, .last = 12, .chunks = -3, .leaves = {31}}}});
  expect_refused({where, "leaves, and 1 chunk"},
                 {.regions = {{.first = 7, .last = 12, .leaves = {31}}}});
  expect_refused({where, "8 chunks", "no leaves; list"}, {.regions = {in_chunks(7, 12, {})}});
}

TEST(Plan, LeavesRiseAndAreOfOneRegion) {
  const std::string_view where = "plan: regions: nodes 7 to 12: leaves: ";
  const std::string_view remedy = "list each value once, in rising order";
  expect_refused({where, "value -1 cannot exist"}, {.regions = {in_chunks(7, 12, {-1, 3})}});
  expect_refused({where, "value 31 comes after value 31", remedy},
                 {.regions = {in_chunks(7, 12, {31, 31})}});
  expect_refused({where, "value 30 comes after value 31", remedy},
                 {.regions = {in_chunks(7, 12, {31, 30})}});
  expect_refused({where, "value 9 comes after value 9", remedy},
                 {.regions = {in_chunks(2, 3, {9}), in_chunks(7, 12, {9})}});
}

TEST(Plan, NothingLiesInARegionInChunks) {
  const Region outer = in_chunks(7, 12, {31}), same = {.first = 7, .last = 12};
  expect_refused({"plan: regions: nodes 8 to 9 run in chunks, inside nodes 7 to 12, which do too",
                  "leave one of the two out"},
                 {.regions = {outer, in_chunks(8, 9, {25})}});
  expect_refused({"nodes 7 to 12 run in chunks, inside nodes 7 to 12"},
                 {.regions = {outer, outer}});
  expect_refused({"plan: regions: nodes 8 to 9 are recomputed, inside nodes 7 to 12, which run in "
                  "chunks",
                  "leave the inner one out"},
                 {.regions = {outer, {.first = 8, .last = 9}}});
  expect_refused({"nodes 7 to 12 are recomputed", "or list it first"}, {.regions = {outer, same}});
  expect_refused({"nodes 10 to 13 come after nodes 7 to 12", "nest or be disjoint"},
                 {.regions = {outer, in_chunks(10, 13, {33})}});
}

TEST(Plan, RegionsInChunksLieSideBySideAndInRecomputedOnes) {
  const Region same = {.first = 7, .last = 12};
  EXPECT_NO_THROW(check_plan({.regions = {same, in_chunks(7, 12, {30, 31})}}));
  EXPECT_NO_THROW(check_plan({.regions = {{.first = 0, .last = 40},
                                          in_chunks(0, 3, {4}),
                                          {.first = 4, .last = 20},
                                          in_chunks(4, 4, {5}),
                                          in_chunks(7, 12, {31}),
                                          {.first = 13, .last = 14},
                                          in_chunks(15, 20, {40})}}));
}

}  // namespace
}  // namespace spool::testing
