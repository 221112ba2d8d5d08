// Errors: the fields that let a program act on them.

#include "spool/runtime/check.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Check, ThrowsOnlyIfTheConditionFails) {
  check(true, "unused");
  check_file(true, "data.txt", "unused");
  check_setting(true, {"batch"}, "unused");
  check_file_setting(true, "data.txt", {"batch"}, "unused");
  expect_error(ErrorKind::invalid, {"2 rows"}, [] { check(false, 2, " rows"); });
}

TEST(Check, AnErrorOfASettingHasItsKeys) {
  const ErrorFields fields = expect_error(ErrorKind::invalid, {"too long"}, [] {
    check_setting(false, {"seq", "context"}, "too long");
  });
  EXPECT_EQ(fields.settings, (std::vector<std::string>{"seq", "context"}));
}

TEST(Check, AnErrorOfAFileBeginsWithItsName) {
  const auto of_file = [] { check_file(false, "data.txt", "is empty"); };
  EXPECT_EQ(error_of(of_file), "data.txt: is empty");
  EXPECT_EQ(expect_error(ErrorKind::file, {}, of_file).file, "data.txt");
  const auto of_setting = [] { check_file_setting(false, "run", {"out"}, "is there already"); };
  EXPECT_EQ(error_of(of_setting), "run: is there already");
  const ErrorFields fields = expect_error(ErrorKind::file, {}, of_setting);
  EXPECT_EQ(fields.file, "run");
  EXPECT_EQ(fields.settings, std::vector<std::string>{"out"});
}

TEST(Check, AMemoryErrorHasTheNeededAndTheAvailableBytes) {
  const auto work = [] {
    fail_memory({.what = "this run",
                 .needed = size_t{3} << 30,
                 .available = size_t{2} << 30,
                 .advice = "a batch of 1 would fit",
                 .settings = {"memory"}});
  };
  EXPECT_EQ(error_of(work),
            "this run needs 3.00 GiB (3221225472 bytes), and 2.00 GiB (2147483648 bytes) are "
            "available; a batch of 1 would fit");
  const ErrorFields fields = expect_error(ErrorKind::memory, {}, work);
  EXPECT_EQ(fields.needed, size_t{3} << 30);
  EXPECT_EQ(fields.capacity, size_t{2} << 30);
  EXPECT_EQ(fields.settings, std::vector<std::string>{"memory"});
}

}  // namespace
}  // namespace spool::testing
