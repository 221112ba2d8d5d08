#include "spool/models/training/run_checkpoint.h"

#include <nlohmann/json.hpp>

#include "spool/models/families/model_file.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/formats/safetensors.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/runtime/version.h"

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

void save_checkpoint(const std::filesystem::path& directory, const RunState& state) {
  save_model(directory, state.trainer.model(), state.tokenizer.end_of_text());
  save_tokenizer(directory, state.tokenizer);
  save_tensors(directory / "optimizer.safetensors", optimizer_tensors(state.trainer));
  const nlohmann::json run{{"format_version", format_version},
                           {"spool", sentence(version(), " ", commit())},
                           {"step", state.step},
                           {"configuration", configuration(state.options)},
                           {"data_fingerprint", state.data_fingerprint},
                           {"tokenizer", state.tokenizer.name()}};
  write_text_file_atomically(directory / "run.json", run.dump(2) + "\n");
}

void load_checkpoint(const std::filesystem::path& directory, Trainer& trainer,
                     const FileProgress& progress) {
  ModelFile(directory).load(trainer.model(), progress);
  trainer.optimizer().initialise();  // for the padding, which is in no file
  const SafetensorsReader optimizer(directory / "optimizer.safetensors");
  load_tensors(optimizer, optimizer_tensors(trainer), /*ignored=*/{}, progress);
}

void check_finite_checkpoint(const std::filesystem::path& directory) {
  check_finite(ModelFile(directory).tensors());
  check_finite(SafetensorsReader(directory / "optimizer.safetensors"));
}

StoredRun read_run(const std::filesystem::path& directory) {
  return parse_run(read_json(directory / "run.json"));
}

StoredRun parse_run(const JsonField& run) {
  constexpr int64_t max_steps = int64_t{1} << 31;
  const JsonField version = run.member("format_version");
  version.expect(version.value() == format_version, excerpt(version.value()),
                 " cannot be read; this program reads ", format_version);
  return {.step = run.member("step").integer<int64_t>(0, max_steps - 1),
          .data_fingerprint = run.member("data_fingerprint").integer<uint64_t>(),
          .configuration = run.member("configuration")};
}

}  // namespace spool
