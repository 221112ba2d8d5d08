#include "spool/models/families/model_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "spool/models/families/families.h"
#include "spool/models/families/generation_config.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/llmc_model.h"
#include "spool/models/families/weights_file.h"
#include "spool/models/formats/constant_tensors.h"
#include "spool/models/formats/finite_tensors.h"
#include "spool/models/formats/llmc_header.h"
#include "spool/models/formats/named_parameters.h"
#include "spool/models/formats/run_directory.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/file_kind.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr const char *config_name = "config.json", *generation_name = "generation_config.json";
constexpr int32_t published_end_of_text = 50256;
constexpr const char* head_name = "lm_head.weight";

// The tokens of a configuration's eos_token_id that are in the vocabulary.
std::vector<int32_t> stop_tokens_of(const JsonField& config, int64_t vocabulary) {
  std::vector<int32_t> tokens = stop_tokens_in(config).value_or(std::vector<int32_t>{});
  std::erase_if(tokens, [&](int32_t id) { return id >= vocabulary; });
  return tokens;
}

// The tokens of generation_config.json, or else of config.json.
std::vector<int32_t> read_stop_tokens(const JsonField& config, const fs::path& directory,
                                      int64_t vocabulary) {
  const fs::path generation = directory / generation_name;
  if (path_exists(generation)) {
    std::vector<int32_t> tokens = stop_tokens_of(read_json(generation), vocabulary);
    if (!tokens.empty()) return tokens;
  }
  return stop_tokens_of(config, vocabulary);
}

std::shared_ptr<const TensorReader> open_tensors(const fs::path& file) {
  if (file.extension() == ".json") return std::make_shared<const ShardedSafetensorsReader>(file);
  return std::make_shared<const SafetensorsReader>(file);
}

// The file with the weights, given a folder, a config.json, or that file.
fs::path weights_of(const fs::path& model) {
  const fs::path folder = folder_of_model(model);
  const bool is_file = !path_is_directory(model) && model.filename() != config_name;
  return is_file && !checkpoint_named_by(model) ? model : weights_in(folder);
}

JsonField read_config(const fs::path& folder, const fs::path& model) {
  const fs::path file = folder / config_name;
  check_file(path_exists(file), model, "the model's config.json is missing",
             path_is_directory(model) ? "" : " beside it");
  return read_json(file);
}

// Finds how a file prefixes its names.  All but the head may have "transformer." (GPT-2) or
// "model." (others) in front, and some models, such as compiled ones, have further prefixes.  The
// name of the token embedding shows them.
class NamesInFile {
 public:
  // `embedding`: the model's own name for its token embedding.
  NamesInFile(const TensorReader& file, const std::string& embedding) {
    const size_t layer = embedding.rfind('.', embedding.rfind('.') - 1);
    const std::string own = layer == std::string::npos ? embedding : embedding.substr(layer + 1);
    ours_ = embedding.substr(0, embedding.size() - own.size());
    theirs_ = ours_;
    for (const std::string_view known : {"", "model.", "transformer."}) {
      if (file.find(std::string(known) + own)) theirs_ = known;
    }
    if (file.find(theirs_ + own)) return;
    for (const StoredTensor& t : file.tensors()) {
      if (t.name.ends_with("." + own)) theirs_ = t.name.substr(0, t.name.size() - own.size());
    }
  }

  std::string operator()(const std::string& name) const {
    if (name != head_name) return theirs_ + name.substr(ours_.size());
    std::string_view before = theirs_;
    for (const std::string_view known : {"model.", "transformer."}) {
      const bool is_last = before == known || before.ends_with("." + std::string(known));
      if (is_last) before.remove_suffix(known.size());
    }
    return std::string(before) + name;
  }

 private:
  std::string ours_, theirs_;  // prefixes
};

bool same_bytes(const TensorReader& file, const StoredTensor& a, const StoredTensor& b) {
  constexpr uint64_t max_bytes_at_once = uint64_t{1} << 20;
  if (!(a.spec == b.spec)) return false;
  std::vector<std::byte> left(max_bytes_at_once), right(max_bytes_at_once);
  for (uint64_t begin = 0; begin < a.spec.nbytes(); begin += max_bytes_at_once) {
    const size_t n = std::min(max_bytes_at_once, a.spec.nbytes() - begin);
    file.read(a, begin, std::span(left).first(n));
    file.read(b, begin, std::span(right).first(n));
    if (std::memcmp(left.data(), right.data(), n) != 0) return false;
  }
  return true;
}

}  // namespace

namespace {

// The base that an adapter names, as a path from here or from the adapter's folder.
fs::path base_of(const AdapterFile& adapter, const fs::path& given) {
  if (!given.empty()) return given;
  const std::string& name = adapter.base();
  const fs::path file = adapter.folder() / adapter_config_name;
  check_file_setting(!name.empty(), file.string(), {"base"},
                     "names no model that the adapter changes (base_model_name_or_path); say where "
                     "it is");
  for (const fs::path& path : {fs::path(name), adapter.folder() / name}) {
    if (path_exists(path)) return path;
  }
  check_file_setting(/*ok=*/false, file.string(), {"base"}, "the model that it adapts, ", name,
                     ", is not here; say where it is, or download it");
  return {};
}

bool has_tokenizer(const fs::path& folder) {
  return path_exists(folder / "tokenizer.json") || path_exists(folder / "merges.txt");
}

// Where the tokenizer, the template of chats and the tokens that end a text are: a checkpoint has
// all of them; beside another adapter some may be missing that its base has.
fs::path folder_of_texts(const fs::path& adapter, const fs::path& base) {
  const bool is_checkpoint = path_exists(adapter / "run.json");
  return is_checkpoint || !has_tokenizer(base) ? adapter : base;
}

ModelDescription describe_base(const fs::path& model) {
  const fs::path folder = folder_of_model(model);
  const bool is_file = !path_is_directory(model);
  if (is_file && has_llmc_magic(File::open(model), llmc_model_magic)) {
    return {LlmcModelReader(model).config(), fs::absolute(folder)};
  }
  if (!is_file) check_is_folder_of_model(folder);
  return {model_config(read_config(folder, model)), fs::absolute(folder)};
}

}  // namespace

std::optional<fs::path> adapter_of(const ModelPaths& paths) {
  const bool is_there = path_exists(paths.model);  // else the model's reader says that it is not
  const fs::path folder = is_there ? folder_of_model(paths.model) : fs::path();
  const bool is_adapter = is_there && path_is_directory(folder) && has_adapter(folder);
  check_setting(is_adapter || paths.base.empty(), {"base", "model"}, paths.model.string(),
                " is no adapter, so it has no base; leave the base out, or name the adapter");
  check_setting(!is_adapter || paths.adapter.empty(), {"adapter", "model"}, paths.model.string(),
                " is an adapter already; give the model that both change, and one of them");
  if (is_adapter) return fs::absolute(folder);
  if (paths.adapter.empty()) return {};
  const fs::path given = folder_of_model(paths.adapter);
  check_file(path_exists(given / adapter_config_name), paths.adapter, "has no ",
             adapter_config_name, ", and so no adapter");
  return fs::absolute(given);
}

ModelDescription describe_model(const ModelPaths& paths) {
  const auto folder = adapter_of(paths);
  if (!folder) return describe_base(paths.model);
  const AdapterFile adapter(*folder);
  const bool names_base = paths.adapter.empty();
  ModelDescription base = describe_base(names_base ? base_of(adapter, paths.base) : paths.model);
  return {base.config.adapted(adapter.lora()), folder_of_texts(*folder, base.directory)};
}

ModelFile::ModelFile(const ModelPaths& paths) {
  const auto folder = adapter_of(paths);
  if (folder) adapter_ = std::make_shared<const AdapterFile>(*folder);
  const bool names_base = folder && paths.adapter.empty();
  base_ = names_base ? base_of(*adapter_, paths.base) : paths.model;
  read_weights(weights_of(base_));
  directory_ = fs::absolute(name()).parent_path();
  // A run's directory is another model with each checkpoint.
  if (path_is_directory(base_)) base_ = fs::canonical(folder_of_model(base_));
  if (folder) directory_ = folder_of_texts(*folder, directory_);
}

void ModelFile::check_finite() const {
  spool::check_finite(*tensors_);
  if (adapter_) spool::check_finite(adapter_->tensors());
}

void ModelFile::read_weights(const fs::path& file) {
  if (has_llmc_magic(File::open(file), llmc_model_magic)) {
    const auto reader = std::make_shared<const LlmcModelReader>(file);
    config_ = reader->config();
    if (reader->config().vocabulary == Gpt2Config{}.vocabulary) {
      stop_tokens_ = {published_end_of_text};
    }
    conv1d_ = false;
    tensors_ = reader;
    return;
  }
  if (file.extension() == ".bin") {
    const auto kind = file_kind(File::open(file));
    check_file(!kind, file, kind ? kind->what : "", "; ", kind ? kind->as_model : "");
    check_file(/*ok=*/false, file, "is not a model file of llm.c, which begins with the int32 ",
               llmc_model_magic);
  }
  check_is_no_adapter(file);
  tensors_ = open_tensors(file);
  const JsonField config = read_config(file.parent_path(), file);
  config_ = model_config(config);
  stop_tokens_ = read_stop_tokens(config, file.parent_path(), config_.shape().vocabulary);
}

DType ModelFile::dtype() const {
  for (const StoredTensor& t : tensors_->tensors()) {
    if (!t.name.ends_with("wte.weight") && !t.name.ends_with("embed_tokens.weight")) continue;
    const DType type = loaded(t.spec.type).value_or(DType::f32);
    return is_only_stored(type) ? DType::f32 : type;
  }
  return DType::f32;
}

void ModelFile::load(Model& model, const FileProgress& progress) const {
  std::vector<TensorContents> data;
  for (const Parameter* p : model.parameters()) data.push_back(contents_of(*p));
  model.clear_padding();
  load(model, data, progress);
}

// Some files have a head that is a copy of the token embedding.
void ModelFile::load(Model& model, const std::vector<TensorContents>& parallel,
                     const FileProgress& progress) const {
  check(model.config() == config_, name(), ": the model has another configuration");
  const std::string embedding = model.layout(*model.parameters()[0]).front().name;
  const bool tied = model.layout(model.head()).front().name == embedding;
  const NamesInFile in_file(*tensors_, embedding);
  const std::string head = in_file(head_name);
  const StoredTensor* copy = tied ? tensors_->find(head) : nullptr;
  const StoredTensor* original = tensors_->find(in_file(embedding));
  check_file(!copy || (original && same_bytes(*tensors_, *copy, *original)), name(), "tensor \"",
             head, "\" differs from the token embedding, which is the head of this ",
             config_.family());
  std::vector<NamedTensor> wanted, adapters;
  for (NamedTensor& t : stored(model, parallel, {.conv1d = conv1d_})) {
    (t.name.starts_with(adapter_prefix) ? adapters : wanted).push_back(std::move(t));
  }
  if (adapter_ && !model.config().lora()) adapter_->merge_into(wanted, config_);
  for (NamedTensor& tensor : wanted) tensor.name = in_file(tensor.name);
  load_tensors(
      *tensors_, wanted,
      [&](std::string_view t) { return (tied && t == head) || is_constant_tensor(t); }, progress);
  if (adapter_ && model.config().lora()) adapter_->load(adapters);
}

namespace {

// Transformers' name of the type: "bfloat16".
const char* name_in_config(DType type) {
  return type == DType::bf16 ? "bfloat16" : type == DType::f64 ? "float64" : "float32";
}

// A GPT-2's file may lack a type; transformers then takes that of the weights.  Its tokens are
// written even if null, since transformers has other defaults.
nlohmann::json config_of(const Model& model, std::optional<int32_t> end_of_text) {
  nlohmann::json config = model.config().to_json();
  const bool is_gpt2 = model.config().as<Gpt2Config>() != nullptr;
  const char* type = config.contains("dtype") ? "dtype" : "torch_dtype";
  if (!is_gpt2 || config.contains(type)) config[type] = name_in_config(model.dtype());
  const nlohmann::json end = end_of_text ? nlohmann::json(*end_of_text) : nlohmann::json();
  if (is_gpt2 && !config.contains("bos_token_id")) config["bos_token_id"] = end;
  const bool may_lack = !is_gpt2 && end.is_null();
  if (!may_lack && !config.contains("eos_token_id")) config["eos_token_id"] = end;
  return config;
}

}  // namespace

void save_model(const fs::path& directory, Model& model, const SaveModelOptions& options) {
  Metadata metadata = options.metadata;
  metadata["format"] = "pt";
  save_model_tensors(directory, stored_parameters(model), metadata, options.shard_bytes);
  write_text_file_atomically(directory / config_name,
                             config_of(model, options.end_of_text).dump(2) + "\n");
}

void copy_side_files(const fs::path& from, const fs::path& to) {
  for (const char* name : {generation_name, "chat_template.jinja", "chat_template.json"}) {
    if (!path_exists(from / name)) continue;
    constexpr uint64_t max_bytes = uint64_t{1} << 24;
    write_text_file_atomically(to / name, read_text_file(from / name, max_bytes));
  }
}

}  // namespace spool
