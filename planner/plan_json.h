#pragma once

// A plan as JSON, for people and programs to read:
//
//   {
//     "spool_plan": 2,
//     "chunks": {"8":[13],"nodes":14},
//     "offloads": [{"release":9,"rows":512,"to":"disk","value":3}],
//     "optimizer_state": "streamed",
//     "placement": {"offload":[3],"recompute":[[5,9],12],"values":40},
//     "regions": [[3,6],{"chunks":8,"leaves":[31],"nodes":[7,12]}],
//     "tape_fingerprints": ["00d1e9bbe4c2a7f1", ... one for each of the 14 nodes]
//   }
//
// Values and nodes are listed one by one, or as [first, last] of a range; "values" and "nodes" are
// their total numbers.  A region is [first, last] of its nodes, and an object if it runs in chunks.
// A field that is left out is as in Plan{}.  Equal plans have equal JSON.
//
// Version 1 is version 2 without regions in chunks; a plan that has none is written as version 1.

#include <nlohmann/json_fwd.hpp>

#include "spool/autograd/plan.h"

namespace spool {

class JsonField;

inline constexpr int newest_plan_version = 2;
// Maximum number of nodes, and of values: a hundred times what gpt2-1558m has.
inline constexpr int64_t max_plan_length = 50'000;

nlohmann::json to_json(const Plan&);
// Throws, naming the file and the field, if it is no plan or one that check_plan() refuses.
Plan plan_from_json(const JsonField&);

}  // namespace spool
