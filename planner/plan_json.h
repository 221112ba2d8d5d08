#pragma once

// The JSON format of a plan, for people and programs to read:
//
//   {
//     "spool_plan": 5,
//     "bucket_elements": 65536,
//     "buckets_in_flight": 3,
//     "chunks": {"8":[13],"nodes":14},
//     "made_for": {"budget_bytes":943718400,"loss_rows":512,"machine":"h200","mlp_rows":0,
//                  "peak_bytes":943001600},
//     "offloads": [{"release":9,"rows":512,"to":"disk","value":3}],
//     "optimizer_state": "streamed",
//     "placement": {"offload":[3],"recompute":[[5,9],12],"values":40},
//     "regions": [[3,6],{"chunks":8,"leaves":[31],"nodes":[7,12]}],
//     "state_bytes_on_device": 300000000,
//     "tape_fingerprints": ["00d1e9bbe4c2a7f1", ... one for each of the 14 nodes],
//     "units": [{"away":["parameters","gradients"],"fetch":[0,12],"first_readers":[3,5],
//                "nodes":[3,6],"parameters":[2,3]}],
//     "units_leaving": 0.5,
//     "update": "backward"
//   }
//
// Values and nodes are listed singly, or as [first, last] of a range; "values" and "nodes" are
// their total numbers.  A region is [first, last] of its nodes, or an object if it runs in chunks.
// An omitted field is as in StoredPlan{}; "made_for" has all of its fields.  Equal plans have equal
// JSON.
//
// Version 4 is version 5 without "units", "update", "units_leaving" and "bucket_elements".
// Version 3 is version 4 without "buckets_in_flight", which the plan of a run on several ranks has.
// Version 2 is version 3 without "made_for" and "state_bytes_on_device", version 1 is version 2
// without regions in chunks.  A plan is written as the oldest version that can hold it.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "spool/planner/chunks.h"
#include "spool/planner/plan_file.h"

namespace spool {

class JsonField;

inline constexpr int newest_plan_version = 5;
// Maximum number of nodes, and of values: a hundred times what gpt2-1558m has.
inline constexpr int64_t max_plan_length = 50'000;

// Maximum length of a machine's name, in bytes.
inline constexpr size_t max_machine_name = 200;

nlohmann::json to_json(const StoredPlan&);
// Throws, naming the file and the field, if it is not a plan or check_plan() refuses it.
StoredPlan plan_from_json(const JsonField&);

// Nodes in chunks as a list of [first, last, chunks].
nlohmann::json to_json(const std::vector<NodesInChunks>&);
std::vector<NodesInChunks> nodes_in_chunks_from_json(const JsonField& list);

}  // namespace spool
