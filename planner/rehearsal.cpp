#include "spool/planner/rehearsal.h"

#include "spool/runtime/units.h"

namespace spool {

Report rehearse(const Machine& machine, const std::function<void(MetaStream&)>& work) {
  MetaStream stream(machine);
  work(stream);
  check(stream.memory().live == 0, "rehearsal: ", stream.memory().live,
        " bytes are still live when it ends");
  check(stream.memory().external == 0, "rehearsal: tensors over ", stream.memory().external,
        " bytes of other memory are still live when it ends");
  return {.memory = stream.memory(), .seconds = stream.now()};
}

std::unique_ptr<Stream> open_stream_for(const std::function<void(Stream&)>& work, Device device,
                                        int threads) {
  const auto probe = open_stream(device, Arena::granule, threads);
  const Machine machine{.architecture = probe->architecture()};
  const size_t peak = rehearse(machine, work).memory.peak, capacity = device_memory(device);
  if (peak > capacity) {
    fail_memory({.what = "this",
                 .needed = peak,
                 .available = capacity,
                 .place = sentence("on the device ", name(device.type))});
  }
  return open_stream(device, peak, threads);
}

}  // namespace spool
