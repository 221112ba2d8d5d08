#include "spool/models/training/run_checkpoint.h"

#include <nlohmann/json.hpp>

#include "spool/models/families/model_file.h"
#include "spool/models/formats/safetensors.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/runtime/files/json.h"

namespace spool {
namespace {

constexpr int format_version = 1;

std::vector<NamedTensor> optimizer_tensors(Trainer& trainer) {
  std::vector<NamedTensor> all;
  const auto append = [&](const std::vector<Tensor>& tensors, const char* prefix) {
    if (tensors.empty()) return;
    for (NamedTensor& t : stored(trainer.model(), tensors, {.prefix = prefix})) {
      all.push_back(std::move(t));
    }
  };
  append(trainer.optimizer().first_moments(), "m.");
  append(trainer.optimizer().second_moments(), "v.");
  append(trainer.optimizer().masters(), "master.");
  return all;
}

}  // namespace

void save_checkpoint(const std::filesystem::path& directory, Trainer& trainer,
                     const Tokenizer& tokenizer, const nlohmann::json& run) {
  save_model(directory, trainer.model(), tokenizer.end_of_text());
  save_tokenizer(directory, tokenizer);
  save_tensors(directory / "optimizer.safetensors", optimizer_tensors(trainer));
  nlohmann::json whole = run;
  whole["format_version"] = format_version;
  whole["tokenizer"] = tokenizer.name();
  write_text_file_atomically(directory / "run.json", whole.dump(2) + "\n");
}

void load_checkpoint(const std::filesystem::path& directory, Trainer& trainer) {
  ModelFile(directory).load(trainer.model());
  trainer.optimizer().initialise();  // the padding is in no file
  const SafetensorsReader optimizer(directory / "optimizer.safetensors");
  load_tensors(optimizer, optimizer_tensors(trainer));
}

nlohmann::json read_run(const std::filesystem::path& directory) {
  const std::string file = directory / "run.json";
  nlohmann::json run = read_json(file);
  check_run(run, file);
  return run;
}

void check_run(const nlohmann::json& run, const std::string& file) {
  check_file(
      run.is_object() && run.contains("format_version") && run["format_version"] == format_version,
      file, "field format_version must be ", format_version);
  constexpr uint64_t max_steps = uint64_t{1} << 31;
  check_file(run.contains("step") && run["step"].is_number_unsigned() &&
                 run["step"].get<uint64_t>() < max_steps,
             file, "field step must be there and a whole number below ", max_steps);
  check_file(run.contains("data_fingerprint") && run["data_fingerprint"].is_number_unsigned(), file,
             "field data_fingerprint must be there and a whole number");
  check_file(run.contains("configuration"), file, "field configuration is missing");
}

}  // namespace spool
