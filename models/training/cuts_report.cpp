#include "spool/models/training/cuts_report.h"

#include <nlohmann/json.hpp>

#include "spool/autograd/sharding/sharded_model.h"
#include "spool/models/training/planned_run.h"
#include "spool/planner/sharding/shared_ops.h"

namespace spool {
namespace {

using nlohmann::json;

json cut_json(const CutOfOp& cut) {
  if (cut.by.empty()) return {};
  return {{"by", cut.by}, {"each", cut.each}, {"rows", cut.is_rows}, {"summed", cut.is_summed}};
}

json op_json(const SharedOp& op) {
  json along = json::array(), parameters = json::array(), moves = json::array();
  for (const CutOfOp& cut : op.along) along.push_back(cut_json(cut));
  for (const StoredParameter& p : op.parameters) {
    json stored = json::array();
    for (const State s : p.along) stored.push_back(in_words(s));
    parameters.push_back({{"name", p.name}, {"stored", std::move(stored)}});
  }
  for (const MoveOfOp& move : op.moves) {
    moves.push_back({{"axis", move.axis},
                     {"move", name(move.what)},
                     {"backward", move.is_backward},
                     {"value", move.value},
                     {"bytes", move.bytes},
                     {"ms", 1e3 * move.seconds}});
  }
  return {{"name", op.name},
          {"along", std::move(along)},
          {"parameters", std::move(parameters)},
          {"moves", std::move(moves)}};
}

}  // namespace

json cuts_report(const TrainingConfig& config, const Machine& machine) {
  if (!config.shards || config.shards->mesh.size() == 0) return {};
  const MeshAxes& mesh = config.shards->mesh;
  MetaStream alone{Machine{}};
  const std::unique_ptr<StepModel> model = describe_step(config).make_model(alone);
  const RecordedLoss loss = record_loss(*model, alone);
  Machine of_ranks = machine;
  of_ranks.mesh.ranks = config.ranks;
  MetaStream stream(of_ranks);
  const MeshMachine on_mesh{.machine = machine, .links = links_of_axes(of_ranks.mesh, mesh)};
  json axes = json::array(), parts = json::array();
  for (const MeshAxis& axis : mesh.axes)
    axes.push_back({{"name", axis.name}, {"ranks", axis.size}});
  for (const SharedPart& part :
       shared_ops(loss.program, config.shards->choose(loss), MeshRanks(mesh, stream), on_mesh)) {
    json ops = json::array();
    for (const SharedOp& op : part.ops) ops.push_back(op_json(op));
    parts.push_back({{"name", part.name}, {"layers", part.layers}, {"ops", std::move(ops)}});
  }
  return {{"axes", std::move(axes)}, {"parts", std::move(parts)}};
}

}  // namespace spool
