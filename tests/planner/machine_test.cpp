// Machines that can be named.

#include "spool/planner/machine.h"

#include <gtest/gtest.h>

namespace spool {
namespace {

TEST(Machines, HaveNames) {
  for (const char* known : {"h200", "a100-80g", "a100-40g"}) {
    ASSERT_TRUE(named_machine(known)) << known;
    EXPECT_EQ(named_machine(known)->name, known);
  }
  EXPECT_FALSE(named_machine("h2000"));
  EXPECT_FALSE(named_machine(""));
}

TEST(ConfirmedLeast, HasAnotherTimeNearIt) {
  EXPECT_EQ(confirmed_least({3, 2, 2.2, 5}), 2);
  EXPECT_EQ(confirmed_least({2.2, 0.001, 2, 5}), 2);  // missed by the clock
  EXPECT_EQ(confirmed_least({1, 2}), 2);
  EXPECT_EQ(confirmed_least({4}), 4);
  EXPECT_EQ(confirmed_least({}), 0);
}

}  // namespace
}  // namespace spool
