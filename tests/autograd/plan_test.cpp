// Plans that no tape can follow.

#include "spool/autograd/plan.h"

#include "spool/autograd/tape.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(Plan, IsRefusedByATapeIfNoTapeCouldFollowIt) {
  CpuStream stream(size_t{1} << 20, 1);
  const auto expect_refused = [&](std::initializer_list<std::string_view> words, const Plan& plan,
                                  int line = __builtin_LINE()) {
    expect_error(
        ErrorKind::invalid, words, [&] { const Tape tape(stream, {.plan = plan}); }, __FILE__,
        line);
  };
  expect_refused({"plan: regions", "-1 to 2"}, {.regions = {{.first = -1, .last = 2}}});
  expect_refused({"plan: offloads", "value -4"}, {.offloads = {{.value = -4}}});
  expect_refused({"plan: offloads", "node -7"},
                 {.placement = {Placement::offload}, .offloads = {{.value = 0, .release = -7}}});
  expect_refused({"plan: chunks", "node 1", "-2"}, {.chunks = {1, -2}});
}

}  // namespace
}  // namespace spool::testing
