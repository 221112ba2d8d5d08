#include "spool/autograd/program.h"

namespace spool {
namespace {

std::string name_of(const Program& program, NodeId id) {
  return sentence(program.nodes[id].op->name(), " (node ", id, ")");
}

// Whether backward reads something for the sake of an op of the scope.
bool is_needed(const Program& program, const TapeScope& scope) {
  for (NodeId id = scope.first; id <= scope.last; ++id) {
    if (!program.nodes[id].saves.empty()) return true;
  }
  return false;
}

// The last node that saves each value; -1: none.
IdTable<ValueId, NodeId> last_savers(const Program& program) {
  IdTable<ValueId, NodeId> savers(program.values.size(), -1);
  for (NodeId id = 0; id < program.nodes.next_id(); ++id) {
    for (const ValueId v : program.nodes[id].saves) savers[v] = id;
  }
  return savers;
}

// Why a checkpoint frees nothing.
std::string reason(const Program& program, const TapeScope& scope,
                   const IdTable<ValueId, NodeId>& savers) {
  for (NodeId id = scope.first; id <= scope.last; ++id) {
    for (const ValueId v : program.nodes[id].outputs) {
      if (savers[v] <= scope.last) continue;
      return sentence("the output of ", name_of(program, id), " is saved by ",
                      name_of(program, savers[v]), ", outside of it");
    }
  }
  return "backward reads nothing that it computes";
}

}  // namespace

std::vector<TapeScope> blocks_of(const Program& program) {
  std::vector<TapeScope> blocks;
  for (const TapeScope& scope : program.scopes) {
    if (scope.is_block()) blocks.push_back(scope);
  }
  return blocks;
}

std::vector<std::string> idle_checkpoints(const Program& program) {
  std::vector<std::string> all;
  const IdTable<ValueId, NodeId> savers = last_savers(program);
  for (const TapeScope& scope : program.scopes) {
    if (!scope.frees_nothing || scope.last < scope.first || !is_needed(program, scope)) continue;
    std::string ops = name_of(program, scope.first);
    if (scope.last > scope.first) ops += " to " + name_of(program, scope.last);
    all.push_back(sentence(
        "the checkpoint of ", ops, " frees nothing: ", reason(program, scope, savers),
        "; let a checkpoint hold the ops that read each other's outputs, or leave it out"));
  }
  return all;
}

}  // namespace spool
