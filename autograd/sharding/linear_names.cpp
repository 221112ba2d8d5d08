#include "spool/autograd/sharding/linear_names.h"

namespace spool {
namespace {

bool is_linear(const Notation& n) {
  return n.input(0).text() == "nk" && n.input(1).text() == "ok" && n.output(0).text() == "no";
}

// "S01" for an index that both axes cut.
std::string cut_of(char index, const CutIndices& axes) {
  std::string along;
  for (size_t a = 0; a < 2; ++a) {
    if (axes[a].index == index) along += std::to_string(a);
  }
  return along.empty() ? "R" : "S" + along;
}

}  // namespace

std::optional<std::string> colossalai_name(const WholeOp& op, const Strategy& strategy,
                                           const MeshAxes& mesh) {
  if (mesh.size() != 2 || !is_linear(op.notation)) return std::nullopt;
  const CutIndex first = strategy.axes[0], second = strategy.axes[1];
  const bool cuts_rows = first.index == 'n' || second.index == 'n';
  if (cuts_rows) {
    const bool is_listed = first.index == second.index ? first.dimension == second.dimension
                                                       : first.index != ' ' && second.index != ' ';
    if (!is_listed) return std::nullopt;
  }
  const auto cut = [&](char index) { return cut_of(index, strategy.axes); };
  std::string name =
      cut('n') + cut('o') + " = " + cut('n') + cut('k') + " x " + cut('k') + cut('o');
  if (cuts_rows) name += '_' + std::to_string((first.index == 'n' ? first : second).dimension);
  return name;
}

}  // namespace spool
