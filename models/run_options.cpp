#include "spool/models/run_options.h"

#include <nlohmann/json.hpp>

namespace spool {
namespace {

using nlohmann::json;

std::string list_of_presets() {
  std::string list;
  for (const std::string_view name : gpt2_presets()) {
    list += sentence(list.empty() ? "" : ", ", name);
  }
  return list;
}

// What every setting that a run depends on is called, and where it is.
void take(RunOptions& o, const json& stored) {
  TrainingConfig& t = o.training;
  const auto to = [&](const char* flag, auto& setting) { stored.at(flag).get_to(setting); };
  to("model", o.model);
  to("layers", t.model.layers);
  to("heads", t.model.heads);
  to("channels", t.model.channels);
  to("context", t.model.context);
  to("vocab", t.model.vocabulary);
  to("batch", t.batch);
  to("seq", t.seq);
  to("accumulate", t.accumulate);
  to("steps", t.steps);
  to("warmup", t.warmup);
  to("lr", t.lr);
  to("min-lr", t.min_lr);
  to("beta2", t.optimizer.beta2);
  to("weight-decay", t.optimizer.decay);
  to("clip", t.optimizer.clip);
  to("dropout", t.dropout);
  to("chunk-loss", t.loss_chunk);
  to("seed", t.seed);
  to("data", o.data);
  to("val-data", o.val_data);
  t.dtype = parse_dtype(stored.at("dtype").get<std::string>()).value_or(DType::u16);
}

void refuse_other_flags(const RunOptions& o, const json& stored, const std::string& file) {
  const std::set<std::string> of_the_model{"layers", "heads", "channels", "context", "vocab"};
  const json all = configuration(o);
  for (const auto& [flag, ours] : all.items()) {
    check_file(stored.is_object() && stored.contains(flag), file, "field configuration.", flag,
               " is missing; this is no checkpoint of this version of Spool");
    const json& theirs = stored.at(flag);
    const bool given =
        o.given.contains(flag) || (of_the_model.contains(flag) && o.given.contains("model"));
    check(!given || theirs == ours, "--", flag, " ", ours.dump(),
          " cannot be resumed with: the run has ", theirs.dump(),
          "; leave the flag out to go on, or start a run of its own in another --out");
  }
}

}  // namespace

TrainingConfig training_preset(const std::string& model) {
  const auto shape = gpt2_preset(model);
  check(shape.has_value(), "--model '", model, "' is unknown; there are ", list_of_presets());
  TrainingConfig config{.model = *shape};
  config.seq = shape->context;
  if (model == "gpt2-tiny") {
    config.batch = 16;
    config.lr = 2e-3;
    config.optimizer.beta2 = 0.99;
  } else if (model != "gpt2-124m") {
    config.lr = model == "gpt2-355m" ? 3e-4 : model == "gpt2-774m" ? 2.5e-4 : 2e-4;
  }
  config.min_lr = config.lr / 10;
  return config;
}

json configuration(const RunOptions& o) {
  const TrainingConfig& t = o.training;
  return {{"model", o.model},
          {"layers", t.model.layers},
          {"heads", t.model.heads},
          {"channels", t.model.channels},
          {"context", t.model.context},
          {"vocab", t.model.vocabulary},
          {"dtype", name(t.dtype)},
          {"batch", t.batch},
          {"seq", t.seq},
          {"accumulate", t.accumulate},
          {"steps", t.steps},
          {"warmup", t.warmup},
          {"lr", t.lr},
          {"min-lr", t.min_lr},
          {"beta2", t.optimizer.beta2},
          {"weight-decay", t.optimizer.decay},
          {"clip", t.optimizer.clip},
          {"dropout", t.dropout},
          {"chunk-loss", t.loss_chunk},
          {"seed", t.seed},
          {"data", o.data},
          {"val-data", o.val_data}};
}

void adopt(RunOptions& o, const json& stored, const std::string& file) {
  refuse_other_flags(o, stored, file);
  try {
    take(o, stored);
  } catch (const json::exception& e) {
    check_file(false, file, "field configuration: ", e.what());
  }
}

}  // namespace spool
