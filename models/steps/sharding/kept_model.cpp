#include "spool/models/steps/sharding/kept_model.h"

#include "spool/autograd/sharding/rank_group.h"

namespace spool {

KeptModels take_model(KeptModels* kept, const Machine& machine, const Plan& plan) {
  KeptModels taken = kept ? std::move(*kept) : nullptr;
  std::vector<bool> away = parameters_away(plan);
  if (taken && taken->away() != away) taken = nullptr;
  if (!taken) taken = std::make_unique<KeptModel>(machine, std::move(away));
  taken->stream().adopt();
  return taken;
}

StepModel& KeptModel::model(const StepDescription& step, const Plan& plan) {
  if (model_) return *model_;
  model_ = make_step_model(step, stream_, plan);
  memory_ = stream_.memory();
  const auto add = [this](MetaStream& stream) { clocks_.push_back({&stream, stream.clock()}); };
  add(stream_);
  if (model_->shards()) add(dynamic_cast<MetaStream&>(model_->shards()->queue()->stream()));
  return *model_;
}

bool KeptModel::end(Report& report, bool keep) {
  for (Parameter* p : model_->parameters()) p->grad = {};
  report.memory = stream_.memory();
  report.missing = {stream_.missing().begin(), stream_.missing().end()};
  report.memory.live = 0;  // but the model's
  report.memory.live_by = {};
  for (const Clock& c : clocks_) c.stream->set_clock(c.clock);
  if (keep && stream_.arena().count_again_from(memory_)) return true;
  model_.reset();
  check_all_free(stream_);
  return false;
}

}  // namespace spool
