#include "spool/planner/rehearsal.h"

namespace spool {

Report rehearse(const Machine& machine, const std::function<void(MetaStream&)>& work) {
  MetaStream stream(machine);
  work(stream);
  check(stream.memory().live == 0, "rehearsal: ", stream.memory().live,
        " bytes are still held when it ends");
  return {.memory = stream.memory(), .seconds = stream.now()};
}

}  // namespace spool
