// Amounts of memory as text.

#include "spool/runtime/units.h"

#include <cmath>
#include <map>
#include <string>

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Units, ReadAmountsAsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("2GiB"), size_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5 GB"), 1500000000u);
  EXPECT_EQ(parse_bytes("512"), 512u);
  EXPECT_EQ(parse_bytes("512MiB"), size_t{512} << 20);
}

TEST(Units, AreReadInAnyCase) {
  for (const auto& [text, bytes] : std::map<std::string, size_t>{{"2gb", 2'000'000'000},
                                                                 {"3GIB", size_t{3} << 30},
                                                                 {"5 mib", size_t{5} << 20},
                                                                 {"7KB", 7000},
                                                                 {"7k", 7168},
                                                                 {"9b", 9}}) {
    EXPECT_EQ(parse_bytes(text), bytes) << text;
  }
}

TEST(Units, RefuseOtherText) {
  for (const std::string bad :
       {"", "GiB", "2 apples", "-1GiB", "0", "nan", "1e999", "2GiBB", "1e30TiB"}) {
    expect_error(ErrorKind::invalid, {"'" + bad + "'", "amount of memory"},
                 [&] { parse_bytes(bad); });
  }
}

TEST(Units, NumbersAreWrittenInTheirShortestForm) {
  EXPECT_EQ(format_number(3e-4), "0.0003");
  EXPECT_EQ(format_number(1.23456789), "1.23456789");
  EXPECT_EQ(format_number(6e-5), "6e-05");
  EXPECT_EQ(as_written(0.1F), 0.1);
  EXPECT_EQ(as_written(-5.5569134F), -5.5569134);
  EXPECT_EQ(static_cast<float>(as_written(1.1754944e-38F)), 1.1754944e-38F);
  EXPECT_TRUE(std::isnan(as_written(std::nanf(""))));
  EXPECT_EQ(as_written(HUGE_VALF), HUGE_VAL);
  EXPECT_NE(0.003 / 10, 0.0003);
  EXPECT_EQ(rounded_to_decimals(0.003 / 10), 0.0003);
  EXPECT_EQ(rounded_to_decimals(0.0), 0.0);
}

TEST(Units, FormatBytesWithTheLargestUnit) {
  EXPECT_EQ(format_bytes(size_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
}

}  // namespace
}  // namespace spool::testing
