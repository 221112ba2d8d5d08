#pragma once

// How ranks that share micro-batches cut the ops of a step, as JSON: the member "cuts" of a report
// of a plan (plan_report.h).
//
// {"axes": [{"name": "tensor", "ranks": 2}, ...],
//  "parts": [{"name": "layers 0–35", "layers": 36,             0: ops beside the layers
//             "ops": [{"name": "attn.c_proj",
//                      "along": [{"by": "inputs", "each": 640, "rows": false, "summed": true},
//                                null],                  by axis; null: each rank does all
//                      "parameters": [{"name": "attn.c_proj.weight",
//                                      "stored": ["cut 1", "shared"]}, ...],   as save-shard says
//                      "moves": [{"axis": 0, "move": "all-reduce", "backward": false,
//                                 "value": "attn.c_proj", "bytes": 5242880, "ms": 0.028}, ...]},
//                     ...]},
//            ...]}
//
// Layers that do the same are one part.  Bytes are those that a rank sends, and the time is that of
// the link.

#include <nlohmann/json_fwd.hpp>

#include "spool/models/training/training_config.h"

namespace spool {

// Null if ranks share no micro-batches.
nlohmann::json cuts_report(const TrainingConfig&, const Machine&);

}  // namespace spool
