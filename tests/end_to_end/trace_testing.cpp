#include "tests/end_to_end/trace_testing.h"

#include <atomic>
#include <thread>

#include "spool/kernels/elementwise.h"
#include "spool/runtime/memory/host_link.h"

namespace spool::testing {

TrainingConfig config_to_trace() {
  TrainingConfig c = small();
  c.accumulate = 5;  // more than a rehearsal of time takes
  c.loss_chunk = 16;
  c.dropout = 0.1f;
  return c;
}

Measured measure(const TrainingConfig& c, const TrainingPlans& plans, Stream& stream) {
  Trainer trainer(c, plans, stream);
  trainer.initialise();
  trainer.step(0, rows);
  const auto trace = std::make_shared<Trace>();
  const uint64_t before = stream.launches();
  {
    const Traced traced(stream, trace);
    trainer.step(1, rows);
  }
  const uint64_t launches = stream.launches() - before;
  trainer.step(2, rows);
  return {.spans = trace->spans(), .launches = launches, .memory = stream.memory()};
}

Spans foretell(const TrainingConfig& c, const TrainingPlans& plans, Stream& like) {
  return foretell_step(c, plans, Machine{.architecture = like.architecture()});
}

Spans there_and_back(Stream& stream, double seconds_of_the_disk) {
  const auto trace = std::make_shared<Trace>();
  const Tensor x({Shape{1 << 18}}, stream), y({Shape{1 << 18}}, stream);
  HostLink link(stream, x.nbytes());
  const Traced traced(stream, trace);
  const TraceScope scope(stream.trace(), "offload");
  launch(Fill{.out = x}, stream);
  HostSlot slot(link, x.nbytes(), "x");
  link.begin_out().copy_out(slot.data(), x.view().data(), x.nbytes());
  const auto computed = std::make_shared<std::atomic<bool>>(false);
  link.out().host_work("write", seconds_of_the_disk, [=] {
    while (!*computed) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of_the_disk));
  });
  launch(Fill{.out = y}, stream);
  stream.host_work("computed", 0.0, [=] { *computed = true; });
  stream.wait(link.out().record());
  link.begin_in().copy_in(x.view().data(), slot.data(), x.nbytes());
  stream.wait(link.in().record());
  slot = {};
  launch(Add{.out = y, .a = x}, stream);
  stream.synchronize();  // first compute: an emulated device does what it is asked for
  return trace->spans();
}

}  // namespace spool::testing
