#include "spool/models/training/run/checkpoint_files.h"

#include <spdlog/fmt/fmt.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "spool/models/families/families.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/model_file.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/formats/safetensors.h"
#include "spool/models/steps/exchange/gradient_sums.h"
#include "spool/models/steps/files/state_tensors.h"
#include "spool/models/tokenizers/tokenizer_choice.h"
#include "spool/models/training/settings/setting_checks.h"
#include "spool/planner/machines/matmul_table.h"
#include "spool/runtime/bulk_hash.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/units.h"
#include "spool/runtime/version.h"

namespace spool {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int format_version = 1;
constexpr const char *model_file = "model.safetensors", *run_file = "run.json",
                     *merges_file = "merges.txt", *vocabulary_file = "vocab.json",
                     *tokenizer_file = "tokenizer.json";

OptimizerFile optimizer_file(Trainer& trainer) {
  Model& model = trainer.model();
  return {trainer.optimizer(), model.parameters(),
          [&model](const std::vector<TensorContents>& parallel, std::string_view prefix) {
            return stored(model, parallel, {.prefix = prefix});
          }};
}

std::optional<uint64_t> parse_hex(const JsonField& field) {
  const std::string text = field.string();
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  field.expect(error == std::errc() && hash_in_words(hash) == text, excerpt(field.value()),
               " is not a hash of 16 hexadecimal digits");
  return hash;
}

ChunkRows read_rows(const JsonField& field) {
  const auto rows = [&](const char* of) {
    return field.member(of).integer<int64_t>(0, largest_count);
  };
  return {.loss = rows("loss"), .mlp = rows("mlp")};
}

// A GPT-2's configuration without fields that change no number, which its folder may have or lack.
json numbers_of(const json& config) {
  const ModelConfig model = model_config(parse_json(config.dump(), run_file));
  const auto* const gpt2 = model.as<Gpt2Config>();
  return gpt2 ? ModelConfig(*gpt2).to_json() : config;
}

// See the header.
std::string hash_of_run(json settings, uint64_t data, std::optional<uint64_t> initial_weights) {
  for (const std::string& key : settings_without_numbers()) settings.erase(key);
  if (settings.contains("config")) settings["config"] = numbers_of(settings["config"]);
  Hash hash;
  hash.add(settings.dump());
  hash.add(data);
  if (initial_weights) hash.add(*initial_weights);
  return hash_in_words(hash.state());
}

CheckpointMark mark_of(const CheckpointContents& s) {
  return {.step = s.step,
          .run = hash_of_run(configuration(s.options), s.data_fingerprint, s.initial_weights)};
}

std::string hash_of_file(const fs::path& file) {
  constexpr uint64_t max_bytes = uint64_t{1} << 28;
  const std::string text = read_text_file(file, max_bytes);
  BulkHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash_in_words(hash.state());
}

std::map<std::string, std::string> hashes_of_vocabulary(const fs::path& directory) {
  std::map<std::string, std::string> hashes;
  for (const char* name : {merges_file, vocabulary_file, tokenizer_file}) {
    if (path_exists(directory / name)) hashes[name] = hash_of_file(directory / name);
  }
  return hashes;
}

// Bytes of the tensors; the rest of a checkpoint is small.
size_t bytes_of_checkpoint(Trainer& trainer) {
  size_t bytes = optimizer_file(trainer).nbytes();
  Model& model = trainer.model();
  const bool has_adapters = bool(model.config().lora());
  for (const NamedTensor& t : has_adapters ? stored_adapters(model) : stored_parameters(model)) {
    bytes += t.tensor.nbytes();
  }
  return bytes;
}

// A run may also be resumed with a vocabulary that is not in the checkpoint.
void check_vocabulary(const fs::path& directory, const StoredRun& run) {
  if (!path_exists(directory / merges_file) && !path_exists(directory / tokenizer_file)) return;
  for (const auto& [name, hash] : run.vocabulary) {
    const bool known = name == merges_file || name == vocabulary_file || name == tokenizer_file;
    check_file(known, directory / run_file, "field vocabulary: ", excerpt(name),
               " is no file of a vocabulary");
    check_file(hash_of_file(directory / name) == hash, directory / name,
               "is not the file that the checkpoint was written with", remedy_of_mixed_checkpoint);
  }
}

}  // namespace

uint64_t hash_of_weights(Trainer& trainer) {
  Model& model = trainer.model();
  if (model.config().lora()) return hash_of(stored_parameters(model));
  return hash_of(stored(model, exact_parameters(trainer.optimizer(), model.parameters())));
}

namespace {

// The model, or the adapters that are trained in place of it.
void save_weights(const fs::path& directory, const CheckpointContents& state,
                  const Metadata& metadata) {
  Model& model = state.trainer.model();
  if (model.config().lora()) {
    const auto exact = exact_parameters(state.trainer.optimizer(), model.parameters());
    return save_adapter(directory, model, exact, state.base, metadata);
  }
  const auto end_of_text = end_of_text_within(state.tokenizer, model.shape().vocabulary);
  save_model(directory, model, {.end_of_text = end_of_text, .metadata = metadata});
}

}  // namespace

void save_checkpoint(const fs::path& directory, const CheckpointContents& state) {
  const CheckpointMark mark = mark_of(state);
  const Metadata metadata = metadata_of(mark);
  save_weights(directory, state, metadata);
  save_tokenizer(directory, state.tokenizer);
  if (!state.model.empty()) copy_side_files(state.model, directory);
  optimizer_file(state.trainer).save(directory, metadata);
  json run{{"format_version", format_version},
           {"spool", sentence(version(), " ", commit())},
           {"step", state.step},
           {"configuration", configuration(state.options)},
           {"data_fingerprint", state.data_fingerprint},
           {"tokenizer", state.tokenizer.name()},
           {"run", mark.run},
           {"gradient_sums", sums_to_json(summed_ranks(state.options.training.step()))},
           {"tape", hash_in_words(state.tape)}};
  if (const auto& chunks = state.options.training.evaluation) {
    run["evaluation_rows"] = {{"loss", chunks->loss}, {"mlp", chunks->mlp}};
  }
  if (state.evaluations.last) run["evaluations"] = to_json(state.evaluations);
  if (!state.products.places.empty()) run["products"] = to_json(state.products);
  if (state.initial_weights) run["initial_weights"] = hash_in_words(*state.initial_weights);
  const auto vocabulary = hashes_of_vocabulary(directory);
  if (!vocabulary.empty()) run["vocabulary"] = vocabulary;
  write_text_file_atomically(directory / run_file, run.dump(2) + "\n");
}

void write_checkpoint(RunDirectory& directory, const CheckpointContents& state) {
  try {
    directory.write(state.step, [&](const fs::path& p) { save_checkpoint(p, state); });
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::file) throw;
    std::string why = e.what();
    const size_t needed = bytes_of_checkpoint(state.trainer);
    std::error_code error;
    const fs::space_info disk = fs::space(directory.path(), error);
    if (!error && disk.available < needed) {
      why += sentence("; a checkpoint takes ", format_bytes(needed), ", and ",
                      format_bytes(disk.available), " are free there");
    }
    const auto latest = directory.latest();
    why += latest ? sentence("; the latest checkpoint is ", latest->string())
                  : std::string("; the run has no checkpoint yet");
    throw Error(ErrorKind::file, why, e.fields());
  }
}

void store_evaluations(const fs::path& directory, const EvaluationHistory& evaluations) {
  json run = read_json(directory / run_file).value();
  run["evaluations"] = to_json(evaluations);
  write_text_file_atomically(directory / run_file, run.dump(2) + "\n");
}

fs::path load_checkpoint(const fs::path& directory, const fs::path& base, Trainer& trainer,
                         const FileProgress& progress) {
  const ModelFile model({directory, /*adapter=*/"", base});
  check_file(model.config() == trainer.model().config(), directory / "config.json",
             "describes another model than the configuration in ", run_file,
             remedy_of_mixed_checkpoint);
  model.load(trainer.model(), progress);
  optimizer_file(trainer).load(directory, /*ignored=*/{}, progress);
  return model.adapter() ? fs::absolute(model.base()) : fs::path();
}

void check_finite_checkpoint(const fs::path& directory) {
  if (has_adapter(directory)) {
    check_finite(AdapterFile(directory).tensors());
  } else {
    check_finite(ModelFile(directory).tensors());
  }
  check_finite(SafetensorsReader(directory / OptimizerFile::name));
}

StoredRun read_run(const fs::path& directory) {
  const StoredRun run = parse_run(read_json(directory / run_file));
  const char* const weights = has_adapter(directory) ? adapter_weights_name : model_file;
  check_belong_together(
      directory, {MarkedFile{directory / run_file, run.mark}, marked_file(directory / weights),
                  marked_file(directory / OptimizerFile::name)});
  check_vocabulary(directory, run);
  return run;
}

StoredRun parse_run(const JsonField& run) {
  constexpr int64_t max_steps = int64_t{1} << 31;
  const JsonField version = run.member("format_version");
  version.expect(version.value() == format_version, excerpt(version.value()),
                 " cannot be read; this program reads ", format_version);
  StoredRun stored{.step = run.member("step").integer<int64_t>(0, max_steps - 1),
                   .data_fingerprint = run.member("data_fingerprint").integer<uint64_t>(),
                   .configuration = run.member("configuration")};
  if (const auto weights = run.find("initial_weights"))
    stored.initial_weights = parse_hex(*weights);
  if (const auto files = run.find("vocabulary")) {
    for (const JsonField& hash : files->members()) stored.vocabulary[hash.key()] = hash.string();
  }
  if (const auto products = run.find("products")) {
    stored.products = matmul_algorithms_from_json(*products);
  }
  if (const auto tape = run.find("tape")) stored.tape = parse_hex(*tape);
  if (const auto evaluations = run.find("evaluations")) {
    stored.evaluations = evaluation_history_from_json(*evaluations, stored.step);
  }
  if (const auto rows = run.find("evaluation_rows")) stored.evaluation_rows = read_rows(*rows);
  if (const auto sums = run.find("gradient_sums")) stored.summed_ranks = sums_from_json(*sums);
  const auto hash = run.find("run");
  if (!hash) return stored;
  const json& settings = stored.configuration.value();
  stored.configuration.expect(settings.is_object(), "is not an object");
  stored.mark = {.step = stored.step, .run = hash->string()};
  check_file_setting(
      stored.mark->run == hash_of_run(settings, stored.data_fingerprint, stored.initial_weights),
      run.file(), {"model"},
      "its configuration, data_fingerprint or initial_weights were changed after the run wrote "
      "them; change them back, or begin a new run from the checkpoint's weights, which takes other "
      "settings");
  return stored;
}

}  // namespace spool
