// The table of a run on ranks, and of one whose parameters live on the host.

#include "spool/models/cli/tables/plan_table.h"

#include "spool/models/cli/terminal/width.h"
#include "spool/planner/machines/machine.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t MiB = size_t{1} << 20;

class PlanTable : public ::testing::Test {
 protected:
  PlanTable() {
    run_.search = SearchResult{};
    run_.config = options_.training;
    run_.foretold.seconds = 50e-3;
    run_.foretold.memory.peak = 100 * MiB;
  }
  std::string table() const { return wrapped(plan_table(options_, machine_, run_), 77); }

  RunOptions options_ = run_options({{"model", {"gpt2-tiny"}}});
  Machine machine_ = *named_machine("h200");
  PlannedRun run_;
};

TEST_F(PlanTable, OfRanksSaysWhatTheyExchange) {
  run_.exchange = {.ranks = 8,
                   .replicas = 8,
                   .buckets_in_flight = 2,
                   .bucket_bytes = 16 * MiB,
                   .link = {.seconds = 8e-6, .bytes_per_second = 351e9},
                   .sent_bytes = 623 * MiB,
                   .seconds = 2.2e-3,
                   .exposed_seconds = 1.3e-3,
                   .list = {{.name = "gradients", .bytes = 415 * MiB},
                            {.name = "parameters", .bytes = 208 * MiB}},
                   .max_bytes = 28 * MiB};
  const std::string text = table();
  for (const char* lines :
       {" on 8 ranks of h200: ",
        "\n  1 micro-batch a rank; ZeRO 2: gradients and state divided; 2 buckets of\n"
        "      16.0 MiB in flight\n",
        "\n  exchange                      0 B   at the peak; at most 28.0 MiB\n",
        "\n  foretold peak             100 MiB   of each rank\n",
        "\n  exchanged a step          623 MiB   sent by a rank: 415 gradients, 208\n"
        "                                      parameters\n",
        "\n    takes                    2.2 ms   exposed 1.3 ms, 2.6 % of the step\n",
        "\n    by a link of           351 GB/s   each way, and 8 us; not measured"}) {
    EXPECT_TRUE(contains(text, lines)) << lines << "\n" << text;
  }
  EXPECT_FALSE(contains(text, "together")) << "each has a GPU's memory";
}

TEST_F(PlanTable, OfRanksThatShareOpsSaysWhatMovesAndWhatIsCut) {
  run_.exchange = {.ranks = 2,
                   .cuts = {"along tensor: attention by heads in each block"},
                   .list = {{.name = "all-reduce along tensor",
                             .count = 50,
                             .bytes = 3 * MiB,
                             .seconds = 2e-3,
                             .exposed_seconds = 1.8e-3}}};
  const std::string text = table();
  for (const char* lines : {"\n  along tensor: attention by heads in each block\n",
                            "\n    moved                  3.00 MiB   all-reduce along tensor, 50 "
                            "in 2.0 ms,\n                                      exposed 1.8 ms\n"}) {
    EXPECT_TRUE(contains(text, lines)) << lines << "\n" << text;
  }
}

TEST_F(PlanTable, OfRanksSaysWhereTheyDiffer) {
  run_.exchange = {.ranks = 3, .peaks = {90 * MiB, 100 * MiB, 95 * MiB}};
  EXPECT_TRUE(contains(table(), "of rank 1, the most; the least is")) << table();
}

TEST_F(PlanTable, OfRanksOnACpuHasTheirSum) {
  machine_ = {.name = "a cpu", .architecture = CpuArchitecture{.threads = 2}};
  run_.exchange = {.ranks = 4};
  EXPECT_TRUE(contains(table(), "of a machine            400 MiB   its 4 ranks together"))
      << table();
}

PlannedUnit unit(NodeId first, bool is_away) {
  return {.first = first,
          .last = first,
          .parameters = {static_cast<uint32_t>(first)},
          .first_readers = {first},
          .parameters_away = is_away,
          .gradients_away = is_away};
}

TEST_F(PlanTable, SaysWhatLivesOnTheHost) {
  machine_ = {.name = "a cpu", .architecture = CpuArchitecture{.threads = 2}};
  run_.plans.step.units = {unit(0, true), unit(1, false), unit(2, true)};
  run_.plans.step.update = UpdateTime::backward;
  run_.foretold.memory.at_peak_by[Purpose::parameter] = 2 * MiB;
  run_.foretold.host.at_peak_by[Purpose::parameter] = 13 * MiB;
  run_.foretold.host.at_peak_by[Purpose::frozen] = 5 * MiB;
  run_.foretold.host.peak = 18 * MiB;
  const std::string text = table();
  for (const char* lines :
       {"\n  parameters and gradients of 2 of 3 units on the host, updated in backward\n",
        "\n  a cpu's own processors copy them, within the same memory\n",
        "\n  parameters               2.00 MiB   13.0 MiB on the host\n",
        "\n  frozen                        0 B   5.00 MiB on the host\n",
        "\n  gradients                     0 B\n", "\n  host memory              18.0 MiB\n"}) {
    EXPECT_TRUE(contains(text, lines)) << lines << "\n" << text;
  }
}

TEST_F(PlanTable, SaysNothingOfTheHostIfNothingIsThere) {
  EXPECT_FALSE(contains(table(), "host")) << table();
}

TEST_F(PlanTable, WithoutRanksSaysNothingOfThem) {
  for (const char* word : {"rank", "exchange", "ZeRO"}) EXPECT_FALSE(contains(table(), word));
}

}  // namespace
}  // namespace spool::testing
