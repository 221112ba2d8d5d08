#include "spool/planner/sharding/strategies_json.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/file.h"

namespace spool {
namespace {

using nlohmann::json;

json to_json(const std::vector<ValueExchange>& exchanges) {
  json all = json::array();
  for (const ValueExchange& e : exchanges) {
    all.push_back({{"value", e.value},
                   {"move", name(e.move)},
                   {"axes", e.axes},
                   {"bytes", std::llround(e.bytes)}});
  }
  return all;
}

json states(const std::vector<Sharding>& shardings, const std::vector<WholeValue>& values,
            size_t count, const MeshAxes& mesh) {
  json all = json::array();
  for (size_t i = 0; i < count; ++i) {
    all.push_back(in_words(shardings[i], values[i].spec.shape.rank(), mesh));
  }
  return all;
}

json to_json(const OpStrategy& s, const OpStrategies& list) {
  return {{"axes", list.cut_in_words(s.cut.axes)},
          {"inputs", states(s.cut.inputs, list.whole.inputs, list.inputs.size(), list.mesh)},
          {"outputs", states(s.cut.outputs, list.whole.outputs, list.outputs.size(), list.mesh)},
          {"forward", to_json(s.forward)},
          {"backward", to_json(s.backward)},
          {"seconds", s.seconds ? json(*s.seconds) : json()},
          {"colossalai", s.colossalai ? json(*s.colossalai) : json()}};
}

}  // namespace

json to_json(const OpStrategies& list) {
  json strategies = json::array(), refused = json::array();
  for (const OpStrategy& s : list.all) strategies.push_back(to_json(s, list));
  for (const StrategyOrReason& r : list.refused) {
    refused.push_back({{"axes", list.cut_in_words(r.axes)}, {"why", r.why}});
  }
  return {{"op", list.op},
          {"notation", list.notation},
          {"mesh", list.mesh.text()},
          {"strategies", std::move(strategies)},
          {"refused", std::move(refused)}};
}

bool is_of_strategies(const json& found) {
  return found.is_object() && found.contains("notation") && found.contains("strategies");
}

void check_strategies_file(const std::filesystem::path& path) {
  check_writable(path, {"json"});
  if (!path_exists(path)) return;
  std::ifstream in(path);
  const json found = json::parse(in, nullptr, /*allow_exceptions=*/false);
  check_file_setting(is_of_strategies(found), path, {"json"},
                     "exists already and is no list of strategies; choose another name");
}

}  // namespace spool
