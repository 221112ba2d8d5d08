#include "spool/models/run_checkpoint.h"

#include <nlohmann/json.hpp>

#include "spool/models/json.h"
#include "spool/models/run_directory.h"

namespace spool {
namespace {

constexpr int format_version = 1;

std::vector<Tensor> data_of(Gpt2& model) {
  std::vector<Tensor> all;
  for (const Parameter* p : model.parameters()) all.push_back(p->data);
  return all;
}

std::vector<NamedTensor> optimizer_tensors(Trainer& trainer) {
  std::vector<NamedTensor> all;
  const auto append = [&](const std::vector<Tensor>& tensors, const char* prefix) {
    if (tensors.empty()) return;
    for (NamedTensor& t : stored(trainer.model(), tensors, prefix)) all.push_back(std::move(t));
  };
  append(trainer.optimizer().first_moments(), "m.");
  append(trainer.optimizer().second_moments(), "v.");
  append(trainer.optimizer().masters(), "master.");
  return all;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& directory, Trainer& trainer,
                     const nlohmann::json& run) {
  Gpt2& model = trainer.model();
  save_tensors(directory / "model.safetensors", stored(model, data_of(model)), {{"format", "pt"}});
  save_tensors(directory / "optimizer.safetensors", optimizer_tensors(trainer));
  write_text_file_atomically(directory / "config.json", to_json(model.config()).dump(2) + "\n");
  nlohmann::json whole = run;
  whole["format_version"] = format_version;
  write_text_file_atomically(directory / "run.json", whole.dump(2) + "\n");
}

void load_checkpoint(const std::filesystem::path& directory, Trainer& trainer) {
  load_model(directory, trainer.model());
  trainer.optimizer().initialise();  // the padding is in no file
  const SafetensorsReader optimizer(directory / "optimizer.safetensors");
  load_tensors(optimizer, optimizer_tensors(trainer));
}

nlohmann::json read_run(const std::filesystem::path& directory) {
  const std::string file = directory / "run.json";
  nlohmann::json run = read_json(file);
  check_file(
      run.is_object() && run.contains("format_version") && run["format_version"] == format_version,
      file, "field format_version must be ", format_version);
  check_file(run.contains("step") && run["step"].is_number_unsigned(), file,
             "field step must be there and a whole number");
  check_file(run.contains("configuration"), file, "field configuration is missing");
  return run;
}

std::filesystem::path find_checkpoint(const std::filesystem::path& model) {
  check_file(std::filesystem::exists(model), model, "there is no such file or directory");
  check_file(std::filesystem::is_directory(model), model,
             "is not a directory; --model takes the directory of a run or of a checkpoint");
  if (std::filesystem::exists(model / "model.safetensors")) return model;
  const auto latest = latest_checkpoint(model);
  check_file(latest.has_value(), model,
             "has neither model.safetensors nor a checkpoint that `latest` names");
  return *latest;
}

Gpt2Config read_model_config(const std::filesystem::path& checkpoint) {
  const std::string file = checkpoint / "config.json";
  return gpt2_config(read_json(file), file);
}

void load_model(const std::filesystem::path& checkpoint, Gpt2& model) {
  model.clear_padding();
  const SafetensorsReader file(checkpoint / "model.safetensors");
  load_tensors(file, stored(model, data_of(model)));
}

}  // namespace spool
