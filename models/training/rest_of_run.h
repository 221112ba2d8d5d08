#pragma once

// What a run does besides its steps, evaluations and text samples: the memory that it takes, and
// the chunks of evaluations.

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "spool/models/steps/run_request.h"
#include "spool/models/training/training_config.h"

namespace spool {

// Length of the text samples of a run, in tokens; drawn = 0: there are none.
struct SampleLength {
  int64_t prompt = 0, drawn = 0;
};

// Rehearses only the evaluation and the text sample, with the optimizer's state where the plan of
// the step places it.
MemoryStats rehearse_others(const TrainingConfig&, const Plan& step, const Machine&,
                            const SampleLength&);

// That work of a run in any chunks.  What was rehearsed is remembered.
class RestOfRun {
 public:
  RestOfRun(const TrainingConfig&, const SampleLength&, const Machine&);

  // The rows of an evaluation beside the steps of that plan: the configuration's own, if all of
  // this work fits into `most` bytes with them; else the fewest chunks within `limit` bytes.
  ChunkRows evaluation_rows(const Plan& step, size_t limit, size_t most);
  // The memory in these chunks.
  MemoryStats memory(const Plan& step, const ChunkRows&);

  // The same run in another shape or on another machine, with chunks of its own.
  std::shared_ptr<RestOfRun> with(int64_t batch, int64_t seq, const Machine&) const;
  const TrainingConfig& config() const { return config_; }

 private:
  TrainingConfig config_;
  SampleLength sample_;
  Machine machine_;
  // The place of the state, homes, rows.
  using Key = std::tuple<OptimizerState, size_t, std::vector<int64_t>, int64_t, int64_t>;
  std::map<Key, MemoryStats> known_;
};

// The run, for a planner.
RunSteps describe_run(const std::shared_ptr<RestOfRun>&);

}  // namespace spool
