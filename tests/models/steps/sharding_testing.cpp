#include "tests/models/steps/sharding_testing.h"

#include "spool/runtime/random.h"

namespace spool::testing {

Assignment random_assignment(const RecordedLoss& recorded, const MeshAxes& mesh, uint64_t seed) {
  Random random(seed);
  Assignment how;
  const auto values = whole_values(recorded.program);
  for (NodeId n = 0; n < recorded.program.nodes.next_id(); ++n) {
    std::vector<Strategy> all;
    for (auto& s : all_strategies(whole_op(recorded.program, n, values), mesh)) {
      if (s.strategy) all.push_back(std::move(*s.strategy));
    }
    how.nodes.push_back(all[random.next() % all.size()]);
  }
  return how;
}

}  // namespace spool::testing
