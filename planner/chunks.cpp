#include "spool/planner/chunks.h"

#include "spool/runtime/integer.h"

namespace spool {

Plan chunk_rows(const Program& program, int64_t rows) {
  check(rows > 0, "plan: chunks of ", rows, " rows; a chunk has at least 1");
  Plan plan;
  for (const Node& node : program.nodes) {
    Specs in;
    for (ValueId v : node.inputs) in.push_back(program.values[v].spec);
    const int64_t max = node.op->max_chunks(in);
    plan.chunks.push_back(max > 1 ? static_cast<int>(ceil_div(max, rows)) : 1);
  }
  return plan;
}

}  // namespace spool
