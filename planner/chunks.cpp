#include "spool/planner/chunks.h"

namespace spool {

Plan chunk_rows(const Tape& tape, int64_t rows) {
  check(rows > 0, "plan: chunks of ", rows, " rows");
  Plan plan;
  for (const Node& node : tape.nodes()) {
    Specs in;
    for (ValueId v : node.inputs) in.push_back(tape.values()[static_cast<size_t>(v)].spec);
    const int64_t most = node.op->max_chunks(in);
    plan.chunks.push_back(most > 1 ? static_cast<int>((most + rows - 1) / rows) : 1);
  }
  return plan;
}

}  // namespace spool
