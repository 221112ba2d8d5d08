// The words of policies: what to recompute, what to offload, where the optimizer's state is.

#include "spool/planner/policy.h"

#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(PolicyWords, NameTheKnownOnesWhereTheyAreWrong) {
  Policy policy;
  expect_error(ErrorKind::invalid, {"'relu'", "attention"},
               [&] { set_recompute(policy, "norms,relu"); });
  expect_error(ErrorKind::invalid, {"''"}, [&] { set_recompute(policy, ""); });
  EXPECT_FALSE(parse<Offloading>("some"));
  EXPECT_FALSE(parse<OptimizerState>("disk"));
}

}  // namespace
}  // namespace spool::testing
