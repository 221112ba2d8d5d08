#include "spool/models/inference/loaded_model.h"

#include "spool/models/data/batches.h"

namespace spool {
namespace {

// Rows of logits that exist at a time; more would take memory and save no time.
constexpr int64_t loss_chunk = 512;

TrainingConfig config_of(const ModelFile& file, const LoadedModel::Options& o) {
  TrainingConfig config{.model = file.config(), .dtype = o.dtype, .batch = o.batch};
  config.seq = o.seq ? o.seq : file.config().context;
  config.loss_chunk = loss_chunk;
  config.validate();
  return config;
}

}  // namespace

LoadedModel::Work::Work(const TrainingConfig& config, const Plan& plan, Stream& stream)
    : model(config.model, config.dtype, stream),
      input(config.batch, config.seq, stream),
      evaluator(model, input, plan, stream) {}

LoadedModel::LoadedModel(const ModelFile& file, const Options& o) {
  const TrainingConfig config = config_of(file, o);
  batch_ = config.batch;
  seq_ = config.seq;
  plan_ = make_plans(config).evaluation;
  const Rows nothing = [](int64_t, std::span<int32_t>, std::span<int32_t>) {};
  const auto rehearsal = [&](Stream& stream) {
    Work work(config, plan_, stream);
    work.evaluator.evaluate(batch_, nothing);
    work.evaluator.losses(nothing);
  };
  stream_ = open_stream_for(rehearsal, o.device, o.threads);
  work_ = std::make_unique<Work>(config, plan_, *stream_);
  file.load(work_->model);
}

}  // namespace spool
