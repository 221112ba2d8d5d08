#include "spool/models/inference/loaded_model.h"

namespace spool {
namespace {

// Rows of logits that exist at a time; more would take memory and save no time.
constexpr int64_t loss_chunk = 512;

// The options with the sequence length filled in.
LoadedModel::Options checked_options(const Gpt2Config& model, LoadedModel::Options o) {
  constexpr int64_t limit = int64_t{1} << 31;
  if (o.seq == 0) o.seq = model.context;
  check_setting(o.batch > 0 && o.batch < limit, {"batch"}, "a batch of ", o.batch,
                " rows; it must be between 1 and ", limit - 1);
  check_setting(o.seq > 0, {"seq"}, "sequence length ", o.seq, "; it must be at least 1");
  check_setting(o.seq <= model.context, {"seq"}, "sequence length ", o.seq,
                " is beyond the model's context of ", model.context, "; use shorter sequences");
  check_setting(o.batch * o.seq < limit, {"batch", "seq"}, "a batch of ", o.batch, " rows of ",
                o.seq, " tokens is too large; use a smaller one");
  check_setting(o.dtype == DType::f32 || o.dtype == DType::bf16, {"dtype"},
                "a model computes in f32 or bf16, not in ", name(o.dtype));
  return o;
}

}  // namespace

LoadedModel::Work::Work(const Gpt2Config& config, const Options& o, const Plan& plan,
                        Stream& stream)
    : model(config, o.dtype, stream),
      input(o.batch, o.seq, stream),
      evaluator(model, input, plan, stream) {}

LoadedModel::LoadedModel(const ModelFile& file, const Options& options)
    : options_(checked_options(file.config(), options)),
      plan_(plan_evaluation(file.config(), options_.dtype, options_.batch, options_.seq,
                            {.loss = loss_chunk})) {
  const auto rehearsal = [&](Stream& stream) {
    Work work(file.config(), options_, plan_, stream);
    work.evaluator.rehearse_mean_loss();
    work.evaluator.rehearse_losses();
  };
  stream_ = open_stream_for(rehearsal, options_.device, options_.threads);
  work_ = std::make_unique<Work>(file.config(), options_, plan_, *stream_);
  file.load(work_->model);
}

}  // namespace spool
