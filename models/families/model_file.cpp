#include "spool/models/families/model_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "spool/models/families/families.h"
#include "spool/models/families/generation_config.h"
#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/llmc_model.h"
#include "spool/models/formats/llmc_header.h"
#include "spool/models/formats/run_directory.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr const char *config_name = "config.json", *generation_name = "generation_config.json";
constexpr int32_t published_end_of_text = 50256;
constexpr std::string_view head_name = "lm_head.weight";

fs::path weights_in(const fs::path& directory) {
  if (const auto latest = latest_checkpoint(directory)) return *latest / weights_name;
  const fs::path weights = directory / weights_name;
  const fs::path index = directory / weights_index_name;
  if (!path_exists(weights) && path_exists(index)) return index;
  const bool found = path_exists(weights);
  check_file(found || !path_exists(directory / "pytorch_model.bin"), directory,
             "its model is a pytorch_model.bin; save it again with "
             "save_pretrained(safe_serialization=True)");
  check_file(found, directory,
             "has neither model.safetensors, nor its index, nor a link `latest` to a checkpoint");
  return weights;
}

// Constants that some files have besides the parameters: causal masks, and the speeds of rotation.
bool is_constant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// Of a configuration's eos_token_id, those that the vocabulary has.
std::vector<int32_t> stop_tokens_of(const JsonField& config, int64_t vocabulary) {
  std::vector<int32_t> tokens = stop_tokens_in(config).value_or(std::vector<int32_t>{});
  std::erase_if(tokens, [&](int32_t id) { return id >= vocabulary; });
  return tokens;
}

// What generation_config.json says wins.
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

ModelFile::ModelFile(const fs::path& model) {
  check_file(path_exists(model), model, "there is no such file or directory");
  const fs::path file = path_is_directory(model) ? weights_in(model) : model;
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
  check_file(file.extension() != ".bin", file,
             "is not a model file of llm.c, which begins with the int32 ", llmc_model_magic);
  tensors_ = open_tensors(file);
  const fs::path config_file = file.parent_path() / config_name;
  check_file(path_exists(config_file), file, "the model's config.json is missing beside it");
  const JsonField config = read_json(config_file);
  config_ = model_config(config);
  stop_tokens_ = read_stop_tokens(config, file.parent_path(), config_.shape().vocabulary);
}

fs::path ModelFile::directory() const { return fs::absolute(name()).parent_path(); }

DType ModelFile::dtype() const {
  for (const StoredTensor& t : tensors_->tensors()) {
    if (!t.name.ends_with("wte.weight") && !t.name.ends_with("embed_tokens.weight")) continue;
    const DType type = loaded(t.spec.type).value_or(DType::f32);
    return is_only_stored(type) ? DType::f32 : type;
  }
  return DType::f32;
}

void ModelFile::load(Model& model, const FileProgress& progress) const {
  std::vector<Tensor> data;
  for (const Parameter* p : model.parameters()) data.push_back(p->data);
  model.clear_padding();
  load(model, data, progress);
}

// Some files have a prefix before every name, and a copy of the token embedding that is the head.
void ModelFile::load(Model& model, const std::vector<Tensor>& parallel,
                     const FileProgress& progress) const {
  check(model.config() == config_, name(), ": the model has another configuration");
  constexpr std::string_view with_prefix = "transformer.";
  const std::string embedding = model.layout(*model.parameters()[0]).front().name;
  const bool tied = model.layout(model.head()).front().name == embedding;
  const std::string_view prefix =
      tensors_->find(std::string(with_prefix) + embedding) ? with_prefix : "";
  const StoredTensor* copy = tied ? tensors_->find(head_name) : nullptr;
  const StoredTensor* original = tensors_->find(std::string(prefix) + embedding);
  check_file(!copy || (original && same_bytes(*tensors_, *copy, *original)), name(), "tensor \"",
             head_name, "\" differs from the token embedding, which is the head of this ",
             config_.family());
  load_tensors(
      *tensors_, stored(model, parallel, {.prefix = prefix, .conv1d = conv1d_}),
      [&](std::string_view t) { return (tied && t == head_name) || is_constant(t); }, progress);
}

namespace {

// In the words of transformers: "bfloat16".
const char* name_in_config(DType type) {
  return type == DType::bf16 ? "bfloat16" : type == DType::f64 ? "float64" : "float32";
}

// GPT-2's says no type: transformers takes that of the weights.
nlohmann::json config_of(const Model& model, std::optional<int32_t> end_of_text) {
  nlohmann::json config = model.config().to_json();
  if (model.config().as<Gpt2Config>()) {
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
      config[key] = end_of_text ? nlohmann::json(*end_of_text) : nlohmann::json();
    }
    return config;
  }
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name_in_config(model.dtype());
  if (end_of_text && !config.contains("eos_token_id")) config["eos_token_id"] = *end_of_text;
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
