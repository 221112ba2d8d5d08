// runs: threads
// The link between ranks that is fitted to what their exchanges took.

#include "spool/runtime/ranks/measure_link.h"

#include <mutex>

#include "spool/runtime/ranks/run_ranks.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

double seconds_of(const Link& link, size_t bytes) {
  return link.seconds + static_cast<double>(bytes) / link.bytes_per_second;
}

TEST(FittedLink, IsTheOneThatTookTheseSeconds) {
  const Link link{.seconds = 12e-6, .bytes_per_second = 4e9};
  std::array<double, 3> seconds{};
  for (size_t i = 0; i < 3; ++i) seconds[i] = seconds_of(link, measured_bytes[i]);
  const Link fitted = fit_link(seconds);
  EXPECT_NEAR(fitted.seconds, link.seconds, 1e-9);
  EXPECT_NEAR(fitted.bytes_per_second, link.bytes_per_second, 1);
}

TEST(FittedLink, TakesAsLongForTheMostBytesAsWasMeasured) {
  const std::vector<std::array<double, 3>> all{
      {10e-6, 300e-6, 8e-3}, {10e-6, 900e-6, 8e-3}, {20e-3, 20e-3, 20e-3}, {1e-3, 1e-3, 1e-4}};
  for (const std::array<double, 3>& seconds : all) {
    const Link link = fit_link(seconds);
    EXPECT_GT(link.seconds, 0);
    EXPECT_GT(link.bytes_per_second, 0);
    EXPECT_NEAR(seconds_of(link, measured_bytes.back()), seconds.back(), 1e-9);
  }
  const Link cached = fit_link(all[0]);
  EXPECT_NEAR(seconds_of(cached, measured_bytes[0]), all[0][0], 0.2 * all[0][0]);
}

// 1 MiB in a cache, or beside other programs, says little of what more bytes take, or fewer.
TEST(FittedLink, StandsWhereTimesAreNotThoseOfALink) {
  const Link link{.seconds = 12e-6, .bytes_per_second = 4e9};
  for (const double few : {0.9, 1.0, 1.1}) {
    for (const double some : {0.2, 1.0, 5.0}) {
      for (const double many : {0.9, 1.0, 1.1}) {
        SCOPED_TRACE(sentence(few, ", ", some, " and ", many, " times as long"));
        const Link fitted = fit_link({few * seconds_of(link, measured_bytes[0]),
                                      some * seconds_of(link, measured_bytes[1]),
                                      many * seconds_of(link, measured_bytes[2])});
        EXPECT_NEAR(fitted.seconds, link.seconds, 0.15 * link.seconds);
        for (const size_t mebibytes : {16, 500}) {
          const double wanted = seconds_of(link, mebibytes << 20);
          EXPECT_NEAR(seconds_of(fitted, mebibytes << 20), wanted, 0.15 * wanted);
        }
      }
    }
  }
}

TEST(FittedLink, HasALatencyThatNoExchangeTookLessThan) {
  EXPECT_EQ(fit_link({1e-6, 40e-6, 8e-3}).seconds, 0.5e-6);       // few bytes by a cache
  EXPECT_NEAR(fit_link({5e-3, 1e-3, 8e-3}).seconds, 1e-3, 1e-5);  // the fewest were disturbed
}

TEST(MeasuredLink, IsTheSameOnAllRanks) {
  for (const int size : {2, 3}) {
    std::mutex mutex;
    std::vector<Link> links;
    run_ranks(size, [&](const std::shared_ptr<Communicator>& own) {
      const Link link = measure_link(*own);
      const std::lock_guard lock(mutex);
      links.push_back(link);
    });
    for (const Link& link : links) {
      EXPECT_GT(link.seconds, 0);
      EXPECT_EQ(link.seconds, links[0].seconds);
      EXPECT_EQ(link.bytes_per_second, links[0].bytes_per_second);
    }
  }
  run_ranks(1, [](const std::shared_ptr<Communicator>& own) {
    expect_error(ErrorKind::invalid, {"two ranks"}, [&] { measure_link(*own); });
  });
}

}  // namespace
}  // namespace spool::testing
