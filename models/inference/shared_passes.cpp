#include "spool/models/inference/shared_passes.h"

namespace spool {

SharedPasses::SharedPasses(Model& model, const ShardedModel& shared)
    : model_(model), shared_(shared) {}

// A pass over one token of one text says how the cache is cut: by heads, never by texts, which come
// and go.
KeyValueCache SharedPasses::make_cache(int64_t B, int64_t tokens) {
  Stream& stream = model_.parameters().stream();
  each_cached_ = model_.each_cached(B, tokens);
  cached_.clear();
  passes_.clear();
  KeyValueCache empty(model_.each_cached(/*B=*/1, tokens), {}, stream);
  const RecordedLoss recorded = record(
      [&](Tape& to, KeyValueCache* cache) {
        return model_.hidden(to.input(Tensor(), {Shape{1, 1}, DType::i32}), *cache);
      },
      &empty);
  const Assignment how = shared_.choose(recorded);
  std::vector<Shape> parts;
  const std::vector<WholeValue> values = whole_values(recorded.program);
  for (const ValueId v : written_inputs(recorded.program)) {
    const Sharding& s = cached_.emplace_back(how.given.at(v));
    const Spec own = local_spec(values[static_cast<size_t>(v)], s, shared_.shards()->mesh());
    if (cached_.size() % 2 == 1) parts.push_back(own.shape.with(0, B));  // values are cut alike
  }
  return {each_cached_, parts, stream};
}

Var SharedPasses::hidden(Tape& tape, const Text& text, KeyValueCache& cache) {
  const Shape& read = text.tokens.shape();
  const auto on = [](Tape& to, const Var& v) { return v ? to.input(v.tensor()) : Var(); };
  const auto pass = [&](Tape& to, KeyValueCache* after) {
    return model_.hidden(Text(on(to, text.tokens), on(to, text.positions), on(to, text.first)),
                         *after);
  };
  return apply(tape,
               {.is_hidden = true,
                .has_positions = bool(text.positions),
                .rows = read[0],
                .tokens = read[1]},
               pass, &cache);
}

Var SharedPasses::logits(Tape& tape, const Tensor& rows) {
  const auto pass = [&](Tape& to, KeyValueCache*) { return model_.logits(to.input(rows)); };
  return apply(tape, {.rows = rows.shape()[0]}, pass, nullptr);
}

RecordedLoss SharedPasses::record(const Record& pass, KeyValueCache* cache) const {
  RecordedLoss recorded = shared_.record([&](Tape& to) { return pass(to, cache); },
                                         {.recording = false, .training = false});
  if (cached_.empty()) return recorded;
  size_t next = 0;
  for (const ValueId v : written_inputs(recorded.program)) recorded.stored[v] = cached_.at(next++);
  return recorded;
}

// How a pass is cut does not depend on how much has been read before: it is chosen as if nothing
// had.
Var SharedPasses::apply(Tape& tape, const Kind& kind, const Record& pass, KeyValueCache* cache) {
  std::unique_ptr<ShardedPass>& known = passes_[kind];
  if (!known) {
    Spec each = each_cached_;
    each.shape = each.shape.with(0, kind.rows);
    KeyValueCache empty(each, {}, tape.stream());
    RecordedLoss first = record(pass, &empty);
    Assignment how = shared_.choose(first);
    first.inputs.clear();  // what is kept would take memory
    known = shared_.pass(std::move(first), std::move(how));
  }
  return known->apply(tape, record(pass, cache));
}

}  // namespace spool
