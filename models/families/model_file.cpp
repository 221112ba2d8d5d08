#include "spool/models/families/model_file.h"

#include <algorithm>
#include <cstring>

#include "spool/models/families/llmc_model.h"
#include "spool/models/formats/llmc_header.h"
#include "spool/models/formats/run_directory.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr const char* weights_name = "model.safetensors";
constexpr const char* config_name = "config.json";
constexpr int32_t published_end_of_text = 50256;
constexpr std::string_view head_name = "lm_head.weight";

fs::path weights_in(const fs::path& directory) {
  if (const auto latest = latest_checkpoint(directory)) return *latest / weights_name;
  const fs::path weights = directory / weights_name;
  const bool found = path_exists(weights);
  check_file(found || !path_exists(directory / "model.safetensors.index.json"), directory,
             "its model is in several files; save it again as one, with "
             "save_pretrained(max_shard_size=\"100GB\")");
  check_file(found || !path_exists(directory / "pytorch_model.bin"), directory,
             "its model is a pytorch_model.bin; save it again with "
             "save_pretrained(safe_serialization=True)");
  check_file(found, directory, "has neither model.safetensors nor a link `latest` to a checkpoint");
  return weights;
}

// Causal masks, which some files have besides the parameters.
bool is_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
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
    if (config_.vocabulary == Gpt2Config{}.vocabulary) end_of_text_ = published_end_of_text;
    conv1d_ = false;
    tensors_ = reader;
    return;
  }
  check_file(file.extension() != ".bin", file,
             "is not a model file of llm.c, which begins with the int32 ", llmc_model_magic);
  tensors_ = std::make_shared<const SafetensorsReader>(file);
  const fs::path config_file = file.parent_path() / config_name;
  check_file(path_exists(config_file), file, "the model's config.json is missing beside it");
  const JsonField config = read_json(config_file);
  config_ = gpt2_config(config);
  end_of_text_ = end_of_text_of(config, config_.vocabulary);
}

fs::path ModelFile::directory() const { return fs::absolute(name()).parent_path(); }

DType ModelFile::dtype() const {
  for (const StoredTensor& t : tensors_->tensors()) {
    if (!t.name.ends_with("wte.weight")) continue;
    const DType type = loaded(t.spec.type).value_or(DType::f32);
    return is_only_stored(type) ? DType::f32 : type;
  }
  return DType::f32;
}

void ModelFile::load(Gpt2& model, const FileProgress& progress) const {
  std::vector<Tensor> data;
  for (const Parameter* p : model.parameters()) data.push_back(p->data);
  model.clear_padding();
  load(model, data, progress);
}

void ModelFile::load(Gpt2& model, const std::vector<Tensor>& parallel,
                     const FileProgress& progress) const {
  check(model.config() == config_, name(), ": the model has another configuration");
  constexpr std::string_view with_prefix = "transformer.";
  const std::string wte = std::string(with_prefix) + "wte.weight";
  const std::string_view prefix = tensors_->find(wte) ? with_prefix : "";
  const StoredTensor* head = tensors_->find(head_name);
  const StoredTensor* embedding = tensors_->find(std::string(prefix) + "wte.weight");
  check_file(!head || (embedding && same_bytes(*tensors_, *head, *embedding)), name(), "tensor \"",
             head_name, "\" differs from the token embedding, which is a GPT-2's head");
  load_tensors(
      *tensors_, stored(model, parallel, {.prefix = prefix, .conv1d = conv1d_}),
      [](std::string_view t) { return t == head_name || is_mask(t); }, progress);
}

void save_model(const fs::path& directory, Gpt2& model, std::optional<int32_t> end_of_text,
                Metadata metadata) {
  metadata["format"] = "pt";
  save_tensors(directory / weights_name, stored_parameters(model), metadata);
  write_text_file_atomically(directory / config_name, format_config(model.config(), end_of_text));
}

}  // namespace spool
