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
  const json ours = configuration(o);
  for (const auto& [flag, value] : ours.items()) {
    check_file(stored.is_object() && stored.contains(flag), file, "field configuration.", flag,
               " is missing; this is no checkpoint of this version of Spool");
    const json& theirs = stored.at(flag);
    const bool preset = flag == "layers" || flag == "heads" || flag == "channels" ||
                        flag == "context" || flag == "vocab";
    const bool given = o.given.contains(flag) || (preset && o.given.contains("model"));
    check(!given || theirs == value, "--", flag, " ", value.dump(),
          " cannot be resumed with: the "
          "run has ",
          theirs.dump(),
          "; leave the flag out to go on, or start a run of its own in "
          "another --out");
  }
  try {
    TrainingConfig& t = o.training;
    stored.at("model").get_to(o.model);
    stored.at("layers").get_to(t.model.layers);
    stored.at("heads").get_to(t.model.heads);
    stored.at("channels").get_to(t.model.channels);
    stored.at("context").get_to(t.model.context);
    stored.at("vocab").get_to(t.model.vocabulary);
    const auto dtype = parse_dtype(stored.at("dtype").get<std::string>());
    check_file(dtype.has_value(), file, "field configuration.dtype is no type");
    t.dtype = *dtype;
    stored.at("batch").get_to(t.batch);
    stored.at("seq").get_to(t.seq);
    stored.at("accumulate").get_to(t.accumulate);
    stored.at("steps").get_to(t.steps);
    stored.at("warmup").get_to(t.warmup);
    stored.at("lr").get_to(t.lr);
    stored.at("min-lr").get_to(t.min_lr);
    stored.at("beta2").get_to(t.optimizer.beta2);
    stored.at("weight-decay").get_to(t.optimizer.decay);
    stored.at("clip").get_to(t.optimizer.clip);
    stored.at("dropout").get_to(t.dropout);
    stored.at("chunk-loss").get_to(t.loss_chunk);
    stored.at("seed").get_to(t.seed);
    stored.at("data").get_to(o.data);
    stored.at("val-data").get_to(o.val_data);
  } catch (const json::exception& e) {
    check_file(false, file, "field configuration: ", e.what());
  }
}

}  // namespace spool
