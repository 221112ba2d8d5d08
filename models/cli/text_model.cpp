#include "spool/models/cli/text_model.h"

#include <algorithm>
#include <cstring>

#include "spool/models/cli/commands.h"
#include "spool/models/cli/terminal/long_work.h"
#include "spool/models/inference/batch_generator.h"
#include "spool/models/inference/generator.h"
#include "spool/models/training/run/ranks.h"
#include "spool/models/training/settings/home_settings.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/usable_cores.h"
#include "spool/runtime/ranks/run_ranks.h"

namespace spool {
namespace {

TextWork of_first_rank(const TextWork& own, Communicator& ranks) {
  const std::string first =
      ranks.gather("texts", std::string(reinterpret_cast<const char*>(&own), sizeof own)).front();
  TextWork work;
  std::memcpy(&work, first.data(), sizeof work);
  return work;
}

void rehearse(const TextWork& w, Model& model, Stream& stream, const ShardedModel* shared) {
  if (w.texts > 0) {
    BatchGenerator generator(model, stream, w.texts, w.tokens, shared);
    return generator.rehearse(w.texts, w.prompt, w.added);
  }
  Generator generator(model, stream, w.tokens, shared);
  w.added == 0 ? generator.rehearse() : generator.rehearse(w.prompt, w.added);
}

}  // namespace

TextModel::TextModel(const GenerateArguments& a, const ModelFile& file, TextWork work) {
  if (a.own_rank) work = of_first_rank(work, *a.own_rank);
  const bool has_own_gpu = a.own_rank && chooses_gpus(a.device);
  const Device device = has_own_gpu ? gpu_of_rank(*a.own_rank) : device_of(a.device);
  const EvaluationShape shape{.model = file.config(),
                              .dtype = *parse<DType>(a.dtype),
                              .batch = 1,
                              .seq = std::min(work.tokens, file.config().shape().context),
                              .shards = a.shards,
                              .parameters_on_device = parameters_on_device(a.parameters)};
  const int threads =
      a.own_rank && a.threads == 0 ? std::max(usable_cores() / a.own_rank->size(), 1) : a.threads;
  std::optional<CommandWork> shown;
  if (!a.own_rank || a.own_rank->rank() == 0) shown.emplace("preparing the model");
  stream_ = open_stream_for(
      [&](Stream& s) {
        const PlacedEvaluation evaluation(shape, Plan{}, s);
        rehearse(work, evaluation->model(), s, evaluation->shared());
      },
      device, threads, has_own_gpu ? connected(a.own_rank, device) : a.own_rank);
  use_tuned_products(*stream_);
  evaluation_.emplace(shape, Plan{}, *stream_);
  file.load(model(), shown ? shown->loading() : FileProgress{});
}

}  // namespace spool
