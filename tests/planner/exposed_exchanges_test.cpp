// The part of exchanges between ranks that nothing hides.

#include "spool/planner/report/exposed_exchanges.h"

#include <nlohmann/json.hpp>

#include "spool/planner/report/timeline.h"
#include "spool/planner/report/timeline_json.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/ranks/communicator.h"
#include "tests/kernels/trace_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr size_t million = 1'000'000;

// Two ranks; an exchange of so many millions of bytes takes as many seconds, and one.
class ExposedExchanges : public ::testing::Test {
 protected:
  void exchange(size_t millions, const char* name = "gradients") {
    const Messages all{{1, nullptr, millions * million}, {0, nullptr, million}};
    stream_.ranks()->exchange({.name = name, .out = all, .in = all}, *exchanges_);
  }
  void compute(double seconds) { stream_.host_work("products", seconds, nullptr); }
  void copy_in(double seconds) { copies_->host_work("read", seconds, nullptr); }
  Spans spans() const { return trace_->spans(); }

  MetaStream stream_{
      Machine{.mesh = {.ranks = 2, .link = {.seconds = 1, .bytes_per_second = 1.0 * million}}}};
  std::unique_ptr<Stream> exchanges_ = stream_.side_stream(), copies_ = stream_.side_stream();
  std::shared_ptr<Trace> trace_ = std::make_shared<Trace>();
  Traced traced_{stream_, trace_};

  void SetUp() override {
    exchanges_->trace_with(stream_, TraceLane::exchange);
    copies_->trace_with(stream_, TraceLane::copy_in);
  }
};

TEST_F(ExposedExchanges, AreThoseThatComputeWaitsFor) {
  exchange(3);
  compute(1.5);
  stream_.wait(exchanges_->record());
  compute(1);
  const Spans sent = spans_of(spans(), TraceLane::exchange);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].bytes, 3 * million) << "not what it keeps";
  EXPECT_EQ(sent[0].seconds(), 4);
  const auto waits = waits_for_exchanges(spans());
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0], (Trace::Interval{1.5, 4}));
  EXPECT_EQ(exposed_exchange_seconds(spans()), 2.5);
  EXPECT_EQ(exposed_copies(spans()), 0);
}

TEST_F(ExposedExchanges, ExcludeHiddenOnesAndWaitsForCopies) {
  exchange(1);
  copy_in(6);
  compute(3);
  stream_.wait(exchanges_->record());
  stream_.wait(copies_->record());
  EXPECT_EQ(exposed_exchange_seconds(spans()), 0);
  EXPECT_EQ(exposed_copies(spans()), 0.5);
}

TEST_F(ExposedExchanges, CountWhereCopiesGoOnBesideThem) {
  exchange(4);
  copy_in(2);
  compute(1);
  stream_.wait(copies_->record());
  stream_.wait(exchanges_->record());
  EXPECT_EQ(exposed_exchange_seconds(spans()), 3);
  EXPECT_EQ(exposed_copies(spans()), 1.0 / 5);
}

TEST_F(ExposedExchanges, HaveWhatIsLeftWhenComputeHasEnded) {
  compute(1);
  exchange(1);
  exchange(2, "parameters");
  EXPECT_EQ(exposed_exchange_seconds(spans()), 4);
  const nlohmann::json file = trace_json({{.name = "foretold", .spans = spans()}});
  const nlohmann::json& sums = file["otherData"]["foretold"];
  EXPECT_EQ(sums["exchange_seconds"], 5);
  EXPECT_EQ(sums["exposed_exchange_seconds"], 4);
  EXPECT_TRUE(contains(file.dump(), "\"exchange\""));
}

TEST_F(ExposedExchanges, AreNotSpokenOfWithoutRanks) {
  compute(1);
  copy_in(2);
  EXPECT_TRUE(waits_for_exchanges(spans()).empty());
  EXPECT_FALSE(contains(trace_json({{.name = "foretold", .spans = spans()}}).dump(), "exchange"));
}

}  // namespace
}  // namespace spool::testing
