// runs: threads
// Every op, on every sample of the table, is as check_op() says that ops are.

#include <algorithm>
#include <set>

#include "spool/autograd/checks/applied_op.h"
#include "spool/autograd/checks/check_op.h"
#include "tests/autograd/op_samples.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// Under ThreadSanitizer those whose loops have several pieces, which threads share: all by night,
// else every third, as neighbours in the table are much alike.
std::vector<OpSample> samples() {
  std::vector<OpSample> all = op_samples();
  if (!finds_races()) return all;
  const auto is_small = [](const SampleInput& x) { return x.large.rank() == 0; };
  std::erase_if(all, [&](const OpSample& s) { return std::ranges::all_of(s.inputs, is_small); });
  size_t i = 0;
  if (!nightly()) std::erase_if(all, [&](const OpSample&) { return i++ % 3 != 0; });
  return all;
}

class EveryOp : public ::testing::TestWithParam<OpSample> {};
INSTANTIATE_TEST_SUITE_P(Op, EveryOp, ::testing::ValuesIn(samples()),
                         [](const auto& sample) { return sample.param.name; });

TEST_P(EveryOp, HasWhatCheckOpChecks) {
  for (const std::string& failure : check_op(GetParam())) ADD_FAILURE() << failure;
}

TEST_P(EveryOp, CanBeCutAlongALeadingIndexUnlessItNeedsTheFirstWhole) {
  static const std::set<std::string> need_the_first_dimension_whole{
      "slice_rows", "slice_first_rows", "concat_rows", "concat_with_itself", "transpose_first"};
  EXPECT_EQ(op_checks::leading_indices(op_checks::applied_op(GetParam()).notation).empty(),
            need_the_first_dimension_whole.contains(GetParam().name));
}

}  // namespace
}  // namespace spool::testing
