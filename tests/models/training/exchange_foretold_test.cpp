// What tables and reports say of exchanges between ranks.

#include "spool/models/training/exchange_foretold.h"

#include <nlohmann/json.hpp>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t MiB = size_t{1} << 20;

ExchangeForetold eight_ranks() {
  return {.ranks = 8,
          .zero = 2,
          .replicas = 8,
          .micro_batches = 1,
          .buckets_in_flight = 2,
          .bucket_bytes = 16 * MiB,
          .sent_bytes = 623 * MiB,
          .seconds = 2.2e-3,
          .exposed_seconds = 1.3e-3,
          .list = {{.name = "gradients", .count = 8, .bytes = 415 * MiB, .seconds = 1.4e-3},
                   {.name = "norms", .count = 1, .bytes = 0, .seconds = 1e-5},
                   {.name = "parameters", .count = 8, .bytes = 208 * MiB, .seconds = 0.7e-3}},
          .max_bytes = 28 * MiB};
}

TEST(ExchangeForetold, SaysWhichRanks) {
  ExchangeForetold of = eight_ranks();
  EXPECT_EQ(ranks_in_words(of, "h200"), "8 ranks of h200");
  of.launcher = "torchrun";
  EXPECT_EQ(ranks_in_words(of, "h200"), "8 ranks by torchrun of h200");
  of = {.ranks = 16, .ranks_of_machine = 8};
  EXPECT_EQ(ranks_in_words(of, "h200"), "16 ranks of h200, 8 on a machine");
  of = {.ranks = 1};
  EXPECT_EQ(ranks_in_words(of, "cpu (2 threads)"), "1 rank of cpu (2 threads)");
}

TEST(ExchangeForetold, SaysWhatIsDivided) {
  ExchangeForetold of = eight_ranks();
  EXPECT_EQ(division_in_words(of),
            "1 micro-batch a rank; ZeRO 2: gradients and state divided; 2 buckets of 16.0 MiB in "
            "flight");
  of.zero = 1;
  of.micro_batches = 3;
  of.rounded_from = 20;
  EXPECT_EQ(division_in_words(of),
            "3 micro-batches a rank; ZeRO 1: state divided; 2 buckets of 16.0 MiB in flight; 24 a "
            "step instead of 20, which 8 ranks can share");
  of = {.ranks = 1, .zero = 0, .micro_batches = 2};
  EXPECT_EQ(division_in_words(of), "2 micro-batches a rank; ZeRO 0: nothing divided");
}

TEST(ExchangeForetold, SaysWhatIsSentInTheUnitOfItsSum) {
  ExchangeForetold of = eight_ranks();
  EXPECT_EQ(sent_in_words(of), "sent by a rank: 415 gradients, 208 parameters");
  of.list[2].bytes = 300 * 1024;
  EXPECT_EQ(sent_in_words(of), "sent by a rank: 415 gradients, 300 KiB parameters");
  of.list.clear();
  EXPECT_EQ(sent_in_words(of), "sent by a rank");
  of.list = {{.name = "gradients", .count = 1, .bytes = 100 * MiB},
             {.name = "gradients back", .count = 1, .bytes = 100 * MiB}};
  EXPECT_EQ(sent_in_words(of), "sent by a rank: 200 gradients");
}

TEST(ExchangeForetold, SaysWhoseLinkItIs) {
  ExchangeForetold of = eight_ranks();
  of.link = {.seconds = 20e-6, .bytes_per_second = 3.14e9};
  EXPECT_EQ(link_rate(of), "3.14 GB/s");
  EXPECT_EQ(link_note(of), "each way, and 20 us; not measured");
  of.measured_link = "sockets";
  EXPECT_EQ(link_note(of), "each way, and 20 us; measured, by sockets");
  const nlohmann::json link = to_json(of)["exchange"]["link"];
  EXPECT_EQ(link, (nlohmann::json{
                      {"seconds", 20e-6}, {"bytes_per_second", 3.14e9}, {"measured", "sockets"}}));
}

TEST(ExchangeForetold, IsASentenceOfTheReport) {
  EXPECT_EQ(sentence_of(eight_ranks(), 50e-3),
            "Each of 8 ranks sends 623 MiB a step, in 17 exchanges, which take 2.2 ms; nothing "
            "hides 1.3 ms of it, 2.6 % of the step.");
}

TEST(ExchangeForetold, IsInTheReport) {
  ExchangeForetold of = eight_ranks();
  const nlohmann::json members = to_json(of);
  EXPECT_EQ(members["ranks"], 8);
  EXPECT_EQ(members["ranks_of_machine"], 8);
  EXPECT_EQ(members["zero"], 2);
  EXPECT_EQ(members["buckets_in_flight"], 2);
  EXPECT_EQ(members["exchange"]["sent_bytes"], 623 * MiB);
  EXPECT_EQ(members["exchange"]["seconds"], 2.2e-3);
  EXPECT_EQ(members["exchange"]["exposed_seconds"], 1.3e-3);
  ASSERT_EQ(members["exchange"]["list"].size(), 3u);
  EXPECT_EQ(members["exchange"]["list"][2]["name"], "parameters");
  EXPECT_EQ(members["exchange"]["list"][2]["bytes"], 208 * MiB);
  EXPECT_EQ(members["exchange"]["list"][2]["exposed_ms"], 0);
  EXPECT_FALSE(members.contains("peak_bytes_by_rank"));
  of.peaks = {5, 7};
  EXPECT_EQ(to_json(of)["peak_bytes_by_rank"], (std::vector{5, 7}));
}

// Sums on the exchange queue take its time, and send nothing.
TEST(ExchangeForetold, IsSummedFromARehearsedStep) {
  const auto span = [](Activity activity, const char* name, size_t bytes, double begin,
                       double end) {
    return TraceSpan{.lane = TraceLane::exchange,
                     .activity = activity,
                     .name = name,
                     .bytes = bytes,
                     .begin = begin,
                     .end = end};
  };
  RehearsedStep step{.trace = {{.begin = 0, .end = 4},
                               span(Activity::wait, "wait", 0, 0, 1),
                               span(Activity::host, "gradients", 10, 1, 2),
                               span(Activity::kernel, "sum_ranks", 0, 2, 2.5),
                               span(Activity::host, "gradients", 20, 3, 4),
                               span(Activity::host, "parameters", 5, 4, 4.5)}};
  for (const auto& [bytes, birth, death] :
       {std::tuple<size_t, size_t, size_t>{100, 0, 2}, {50, 1, 4}, {60, 3, 5}}) {
    step.allocations.all.push_back(
        {.bytes = bytes, .label = {.purpose = Purpose::exchange}, .birth = birth, .death = death});
  }
  step.allocations.all.push_back({.bytes = 1000, .birth = 0, .death = 9});
  const ExchangeForetold of = exchanges_of(step);
  EXPECT_EQ(of.sent_bytes, 35u);
  EXPECT_EQ(of.seconds, 3);
  EXPECT_EQ(of.exposed_seconds, 0.5);
  EXPECT_EQ(of.max_bytes, 150u);
  EXPECT_EQ(exchanges_of(step).order, of.order);
  EXPECT_EQ(exchanges_of(step).layout, of.layout);
  step.allocations.all.back().bytes += 1;
  EXPECT_NE(exchanges_of(step).layout, of.layout);
  std::swap(step.trace[2], step.trace[5]);
  EXPECT_NE(exchanges_of(step).order, of.order);
  ASSERT_EQ(of.list.size(), 2u);
  EXPECT_EQ(of.list[0].count, 2u);
  EXPECT_EQ(of.list[0].bytes, 30u);
  EXPECT_EQ(of.list[0].exposed_seconds, 0);
  EXPECT_EQ(of.list[1].exposed_seconds, 0.5);
  EXPECT_EQ(of.list[0].seconds, 2);
  EXPECT_EQ(of.sent("parameters"), 5u);
}

}  // namespace
}  // namespace spool::testing
