#pragma once

// A plan as a file, for people and programs to read:
//
//   {
//     "spool_plan": 1,
//     "chunks": {"8":[13],"nodes":14},
//     "offloads": [{"release":9,"rows":512,"to":"disk","value":3}],
//     "optimizer_state": "streamed",
//     "placement": {"offload":[3],"recompute":[[5,9],12],"values":40},
//     "regions": [[3,6],[7,10]],
//     "tape_fingerprints": ["00d1e9bbe4c2a7f1", ... one for each of the 14 nodes]
//   }
//
// Values and nodes are listed one by one, or as [first, last] of several; of how many, "values" and
// "nodes" say.  What is left out is as in Plan{}.  The same plan makes the same bytes.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "spool/autograd/plan.h"

namespace spool {

inline constexpr int plan_version = 1;
// The most nodes, and the most values, that a plan in a file is for: a hundred times what 1558M
// has.
inline constexpr int64_t max_plan_length = 50'000;

nlohmann::json to_json(const Plan&);
// Throws a sentence with the file and the field where it is no plan, or one that check_plan()
// refuses.
Plan plan_from_json(const nlohmann::json&, const std::string& file);

// The file appears under its name when it is whole.  What is saved can be loaded, and is equal: a
// plan for which that is not so is refused.
void save_plan(const std::filesystem::path&, const Plan&);
Plan load_plan(const std::filesystem::path&);

}  // namespace spool
