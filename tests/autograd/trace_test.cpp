// Traces of a tape: every kernel's span names its op, node and phase.

#include <map>

#include "spool/autograd/ops.h"
#include "spool/runtime/meta/stream.h"
#include "tests/kernels/trace_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(TapeTrace, NamesTheOpOfEveryKernel) {
  MetaStream stream(Machine{});
  std::map<std::string, int> tasks;
  {
    const Tensor x({Shape{8, 16}}, stream);
    Parameter weight{.data = Tensor({Shape{16, 16}}, stream)};
    const auto trace = std::make_shared<Trace>();
    const Traced traced(stream, trace);
    Plan plan;
    plan.placement.resize(10, Placement::recompute);
    Tape tape(stream, {.plan = plan});
    const Var h = linear(tape.input(x), weight), y = gelu(h);
    tape.backward({{linear(y, weight), Tensor({Shape{8, 16}}, stream)}});
    for (const TraceSpan& span : trace->spans()) {
      ASSERT_TRUE(span.context) << text(span);
      ++tasks[sentence(span.context.task, " ", span.context.op, " ", span.context.node)];
    }
    EXPECT_EQ(stream.trace(), trace.get());
  }
  for (const char* phase :
       {"forward linear 0", "forward gelu 1", "forward linear 2", "replay linear 0",
        "replay gelu 1", "backward linear 2", "backward gelu 1", "backward linear 0"}) {
    EXPECT_GE(tasks[phase], 1) << phase;
  }
  EXPECT_EQ(tasks.size(), 8u);
}

}  // namespace
}  // namespace spool::testing
