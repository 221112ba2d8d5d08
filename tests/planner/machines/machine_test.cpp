// Machines known by name, and confirmed times.

#include "spool/planner/machines/machine.h"

#include <gtest/gtest.h>

namespace spool {
namespace {

TEST(Machines, HaveNames) {
  for (const std::string& known : machine_names()) {
    ASSERT_TRUE(named_machine(known)) << known;
    EXPECT_EQ(named_machine(known)->name, known);
    EXPECT_GE(memory_of_named_machine(known), size_t{24'000'000'000}) << known;
  }
  for (const char* known : {"h200", "h100", "a100-80g", "a100-80g-pcie", "a100-40g", "rtx4090"}) {
    EXPECT_TRUE(named_machine(known)) << known;
  }
  for (const char* other : {"h2000", "", "this"}) {
    EXPECT_FALSE(named_machine(other));
    EXPECT_FALSE(memory_of_named_machine(other));
  }
}

TEST(ConfirmedMin, HasAnotherTimeNearIt) {
  EXPECT_EQ(confirmed_min({3, 2, 2.2, 5}), 2);
  EXPECT_EQ(confirmed_min({2.2, 0.001, 2, 5}), 2);  // missed by the clock
  EXPECT_EQ(confirmed_min({1, 2}), 2);
  EXPECT_EQ(confirmed_min({4}), 4);
  EXPECT_EQ(confirmed_min({}), 0);
}

}  // namespace
}  // namespace spool
