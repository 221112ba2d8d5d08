#pragma once

// How ranks share each micro-batch of a run, chosen: candidates (planner/sharding/
// shard_candidates.h) are rehearsed, each keeping all, and planned within the run's memory, those
// first that are expected to be fastest: policies by hand that may be faster than the fastest
// plan, and of others those that are expected to be, by half a percent.  A report of a plan has the
// choice as JSON.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spool/models/training/planned_run.h"
#include "spool/planner/sharding/shard_candidates.h"

namespace spool {

struct JudgedSharding {
  std::string name = {};  // of the candidate
  StepShards shards = {};
  double seconds = 0;  // of a step that keeps all, and its peak in bytes of a rank
  size_t peak = 0;
  // Within the run's memory; none: it was not planned.
  struct Planned {
    bool fits = false;
    double seconds = 0;
    size_t peak = 0;  // the smallest, if it does not fit
  };
  std::optional<Planned> planned = {};
};

struct ShardingChoice {
  std::vector<JudgedSharding> all = {};  // by seconds
  size_t chosen = 0;                     // or, if none fits, the one that needs fewest bytes
  std::vector<ShardCandidates::Refused> refused = {};
  double search_seconds = 0;

  const JudgedSharding& best() const { return all[chosen]; }
};

// Of a run whose ranks are arranged along these axes besides `data`.  Throws, of the settings shard
// and mesh, if no op can be cut along some axis.
ShardingChoice choose_sharding(const TrainingConfig&, const std::string& axes, const RunRequest&,
                               const SampleLength&, const Machine&);

// As JSON, the member "sharding" of a report of a plan (plan_report.h):
//
// {"chosen": "found 2", "search_seconds": 0.8,
//  "candidates": [{"name": "found 2", "foretold_step_ms": 38.2, "foretold_peak_bytes": 6963928064,
//                  "planned": true, "feasible": true}, ...],
//  "refused": [{"name": "rows", "why": "rows do not divide ..."}]}
// Seconds and peak are those of the plan, or, of what is not planned, of a step that keeps all,
// whose feasible is null.
nlohmann::json to_json(const ShardingChoice&);

// A run, and the planner that has planned it.
struct ChosenRun {
  std::unique_ptr<RunPlanner> planner = {};
  PlannedRun run = {};
};

// Plans a run, and chooses first, if the options leave that open ({shard} auto), how its ranks
// share each micro-batch; the options have it afterwards, and the run's refusal, if any, names it.
ChosenRun plan_and_choose(RunOptions&, const RunRequest&, const SampleLength&, const Machine&);

}  // namespace spool
