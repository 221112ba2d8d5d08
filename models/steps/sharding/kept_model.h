#pragma once

// A model on the meta device that the rehearsals of a search have in turn: to record a model and to
// cut its ops for ranks takes longer than a rehearsed step.  A rehearsal on a model that others had
// before has the report, bit for bit, of one on a new model.

#include <memory>
#include <vector>

#include "spool/models/steps/step.h"
#include "spool/planner/rehearsal.h"

namespace spool {

class KeptModel {
 public:
  KeptModel(const Machine& machine, std::vector<bool> away)
      : stream_(machine), away_(std::move(away)) {}
  ~KeptModel() { stream_.adopt(); }
  KeptModel(const KeptModel&) = delete;
  KeptModel& operator=(const KeptModel&) = delete;

  MetaStream& stream() { return stream_; }
  // Made when it is first asked for, for a plan with the same parameters away.
  StepModel& model(const StepDescription&, const Plan&);
  const std::vector<bool>& away() const { return away_; }

  // After a rehearsal, whose memory it reports, and the kernels that were missing so far.  Returns
  // whether another may have the model, which is so if it is to be kept, and has the memory that it
  // had at first; the inputs of a model may come late.  Else it is gone, and this throws if memory
  // is still live.
  bool end(Report&, bool keep);

 private:
  struct Clock {
    MetaStream* stream;
    MetaStream::Clock clock;
  };
  MetaStream stream_;
  std::vector<bool> away_;  // of its parameters
  std::unique_ptr<StepModel> model_ = {};
  MemoryStats memory_ = {};
  std::vector<Clock> clocks_ = {};
};

// What is kept between rehearsals; nothing before the first, and after one that threw.
using KeptModels = std::unique_ptr<KeptModel>;
// What is kept, if it has the plan's parameters away, or a new one.
KeptModels take_model(KeptModels* kept, const Machine&, const Plan&);

}  // namespace spool
