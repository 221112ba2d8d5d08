#include "spool/models/inference/loaded_model.h"

#include <algorithm>
#include <sstream>

#include "spool/planner/machines/machine.h"
#include "spool/planner/machines/matmul_table.h"

namespace spool {
namespace {

// Rows of logits that are live at a time; more would take memory and save no time.
constexpr int64_t loss_chunk = 512;

// The options with the length of rows filled in.
LoadedModel::Options checked_options(const ModelConfig& model, LoadedModel::Options o) {
  const int64_t context = model.shape().context;
  constexpr int64_t limit = int64_t{1} << 31;
  if (o.seq == 0) o.seq = std::min(context, model.defaults().longest_row);
  check_setting(o.batch > 0 && o.batch < limit, {"batch"}, "a batch of ", o.batch,
                " rows; it must be between 1 and ", limit - 1);
  check_setting(o.seq > 0, {"seq"}, "sequence length ", o.seq, "; it must be at least 1");
  check_setting(o.seq <= context, {"seq"}, "sequence length ", o.seq,
                " is beyond the model's context of ", context, "; use shorter sequences");
  check_setting(o.batch * o.seq < limit, {"batch", "seq"}, "a batch of ", o.batch, " rows of ",
                o.seq, " tokens is too large; use a smaller one");
  check_setting(o.dtype == DType::f32 || o.dtype == DType::bf16, {"dtype"},
                "a model computes in f32 or bf16, not in ", name(o.dtype));
  return o;
}

EvaluationShape shape_of(const ModelConfig& model, const LoadedModel::Options& o) {
  return {.model = model,
          .dtype = o.dtype,
          .batch = o.batch,
          .seq = o.seq,
          .packed = o.packed,
          .shards = o.shards,
          .parameters_on_device = o.parameters_on_device};
}

PlannedEvaluation plan_within_budget(const EvaluationShape& shape, const LoadedModel::Options& o) {
  const size_t capacity = device_memory(o.device), limit = std::min(o.memory, capacity);
  Machine machine = measure_machine(o.device, o.dtype, o.threads);
  machine.mesh = mesh_of(o.ranks.get());
  PlannedEvaluation planned = plan_evaluation_within(limit, shape, machine);
  if (planned.foretold.memory.peak <= limit) return planned;
  const auto fits = [&](int64_t batch, int64_t seq) {
    EvaluationShape smaller = shape;
    smaller.batch = batch, smaller.seq = seq;
    return plan_evaluation_within(limit, smaller, machine).foretold.memory.peak <= limit;
  };
  const bool fewer = o.batch > 1 && fits(1, o.seq), shorter = o.seq > 1 && fits(o.batch, 1);
  fail_memory({.what = "this evaluation, in whatever chunks,",
               .needed = planned.foretold.memory.peak,
               .available = limit,
               .place = limit < o.memory ? "on the device" : "in the budget",
               .advice = sentence(fewer ? "a smaller batch, " : "", shorter ? "shorter rows, " : "",
                                  "a larger budget, or fewer threads of a cpu may do"),
               .settings = {"memory", "batch", "seq", "threads"}});
}

// Of rank 0: chunks of ranks that share a batch exchange alike.
ChunkRows rows_of_first(const ChunkRows& own, Communicator& ranks) {
  std::istringstream first(
      ranks.gather("chunks of evaluations", sentence(own.loss, ' ', own.mlp)).front());
  ChunkRows rows;
  first >> rows.loss >> rows.mlp;
  return rows;
}

}  // namespace

LoadedModel::LoadedModel(const ModelFile& file, const Options& options, const FileProgress& loading)
    : options_(checked_options(file.config(), options)) {
  EvaluationShape shape = shape_of(file.config(), options_);
  if (options_.memory > 0) {
    planned_ = plan_within_budget(shape, options_);
    plan_ = planned_->plan;
    if (shape.shards) planned_->rows = rows_of_first(planned_->rows, *options_.ranks);
    shape.chunks = planned_->rows;
    stream_ = open_stream(options_.device, options_.memory, options_.threads);
    stream_->join(options_.ranks);
  } else {
    shape.chunks = {.loss = loss_chunk};
    if (!shape.shards) plan_ = plan_evaluation(shape, shape.chunks);
    stream_ = open_stream_for([&](Stream& s) { rehearse_evaluation(shape, plan_, s); },
                              options_.device, options_.threads, options_.ranks);
  }
  use_tuned_products(*stream_);
  work_.emplace(shape, plan_, *stream_);
  file.load((*work_)->model(), loading);
}

}  // namespace spool
