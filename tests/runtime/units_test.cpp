// Amounts of memory as text.

#include "spool/runtime/units.h"

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

TEST(Units, FormatBytesWithTheLargestUnit) {
  EXPECT_EQ(format_bytes(size_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
}

}  // namespace
}  // namespace spool::testing
