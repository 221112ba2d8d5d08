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

}  // namespace
}  // namespace spool
