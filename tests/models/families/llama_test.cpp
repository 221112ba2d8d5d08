// Llama models of each kind: with and without a cache, and in files as transformers writes them.

#include "spool/models/families/llama.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/families/model_file.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/json.h"
#include "tests/kernels/kernel_testing.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

constexpr LlamaConfig plain{.layers = 2,
                            .channels = 24,
                            .inner = 40,
                            .context = 30,
                            .vocabulary = 50,
                            .heads = {.query = 4, .key = 2},
                            .head = 8,
                            .tied = false};

// Configurations like those of Llama 3, Qwen2 and Qwen3.
std::vector<LlamaConfig> kinds() {
  LlamaConfig scaled = plain, qwen2 = plain, qwen3 = plain;
  scaled.rope.scaling = Llama3Scaling{.factor = 8, .low = 1, .high = 4, .original_context = 16};
  qwen2.type = LlamaType::qwen2;
  qwen2.qkv_bias = qwen2.tied = true;
  qwen3.type = LlamaType::qwen3;
  qwen3.qk_norm = true;
  return {plain, scaled, qwen2, qwen3};
}

class LlamaTest : public ::testing::Test {
 protected:
  std::shared_ptr<Model> make(const LlamaConfig& config, uint64_t seed, DType dtype = DType::f32) {
    auto model = ModelConfig(config).make(dtype, stream_);
    for (Parameter* p : model->parameters()) {
      p->data = normal(p->data.shape(), dtype, stream_, seed++, 0.3);
    }
    model->clear_padding();
    return model;
  }
  Numbers logits(Model& model, const std::vector<int32_t>& tokens) {
    Tape tape(stream_, {.recording = false, .training = false});
    const Shape row{1, static_cast<int64_t>(tokens.size())};
    const Var ids = tape.input(make_tensor<int32_t>(row, tokens, stream_));
    return values(model.logits(model.hidden(ids)).tensor());
  }
  static void expect_equal(Model& a, Model& b) {
    const Parameters &left = a.parameters(), &right = b.parameters();
    ASSERT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(values(left[i]->data), values(right[i]->data)) << left[i]->name;
    }
  }

  CpuStream stream_{size_t{64} << 20, 2};
  const TemporaryDirectory d_;
};

TEST_F(LlamaTest, HasTheParametersThatItsConfigurationCounts) {
  for (const LlamaConfig& config : kinds()) {
    const auto model = make(config, 1);
    int64_t stored_elements = 0;
    for (const NamedTensor& t : stored_parameters(*model)) stored_elements += t.tensor.numel();
    EXPECT_EQ(stored_elements, config.parameter_count());
  }
}

TEST_F(LlamaTest, ReadsTheSameWithACache) {
  const std::vector<int32_t> text{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
  for (const LlamaConfig& config : kinds()) {
    const auto model = make(config, 1, DType::f64);
    const Numbers whole = logits(*model, text);
    KeyValueCache cache = model->make_cache(1, 16);
    Numbers pieces;
    size_t at = 0;
    for (const size_t n : {4u, 1u, 8u, 2u}) {
      Tape tape(stream_, {.recording = false, .training = false});
      const std::span<const int32_t> some = std::span(text).subspan(at, n);
      const Shape row{1, static_cast<int64_t>(n)};
      const Var ids = tape.input(make_tensor<int32_t>(row, some, stream_));
      const Numbers piece = values(model->logits(model->hidden(ids, cache)).tensor());
      pieces.insert(pieces.end(), piece.begin(), piece.end());
      at += n;
    }
    EXPECT_LT(difference(pieces, whole), 1e-12);
  }
}

TEST_F(LlamaTest, LoadsWhatItSavedInOneFileOrSeveral) {
  for (const LlamaConfig& config : kinds()) {
    for (const uint64_t shard_bytes : {UINT64_MAX, uint64_t{5000}}) {
      const TemporaryDirectory d;
      const auto model = make(config, 1), other = make(config, 99);
      save_model(d.path(), *model, {.shard_bytes = shard_bytes});
      EXPECT_EQ(fs::exists(d.path() / "model.safetensors"), shard_bytes == UINT64_MAX);
      const ModelFile file(d.path());
      EXPECT_EQ(file.config(), ModelConfig(config));
      file.load(*other);
      expect_equal(*model, *other);
    }
  }
}

TEST_F(LlamaTest, HasTransformersNamesInFiles) {
  std::set<std::string> names;
  for (const NamedTensor& t : stored_parameters(*make(kinds().back(), 1))) names.insert(t.name);
  for (const char* name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.1.input_layernorm.weight", "model.layers.1.post_attention_layernorm.weight",
        "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.weight",
        "model.layers.1.self_attn.q_norm.weight", "model.layers.1.self_attn.k_norm.weight",
        "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight"}) {
    EXPECT_TRUE(names.erase(name)) << name;
  }
  for (const std::string& name : names) EXPECT_EQ(name.find("model.layers.0."), 0u) << name;
}

TEST_F(LlamaTest, SkipsRotaryFrequenciesInAFile) {
  const auto model = make(plain, 1), other = make(plain, 99);
  save_model(d_.path(), *model);
  std::vector<NamedTensor> tensors = stored_parameters(*model);
  tensors.push_back(
      {"model.layers.0.self_attn.rotary_emb.inv_freq", normal({4}, DType::f32, stream_, 1)});
  save_tensors(d_.path() / "model.safetensors", tensors);
  ModelFile(d_.path()).load(*other);
  expect_equal(*model, *other);
}

TEST_F(LlamaTest, IsReadUnderOtherNamesThatTransformersReads) {
  for (const bool tied : {false, true}) {
    LlamaConfig config = plain;
    config.tied = tied;
    const auto model = make(config, 1);
    save_model(d_.path(), *model);
    for (const std::string before : {"", "_orig_mod.model.", "language_model."}) {
      std::vector<NamedTensor> tensors = stored_parameters(*model);
      for (NamedTensor& t : tensors) {
        const std::string outer = before == "_orig_mod.model." ? "_orig_mod." : before;
        t.name = t.name.starts_with("model.") ? before + t.name.substr(6) : outer + t.name;
      }
      tensors.push_back({before + "rotary_emb.inv_freq", normal({4}, DType::f32, stream_, 1)});
      save_tensors(d_.path() / "model.safetensors", tensors);
      const auto other = make(config, 99);
      ModelFile(d_.path()).load(*other);
      expect_equal(*model, *other);
    }
  }
}

// Some indexes on the hub list constants that no shard has, or omit those that one has.
TEST_F(LlamaTest, SkipsConstantsOfAnIndexAndFolderNames) {
  const auto model = make(plain, 1), other = make(plain, 99);
  save_model(d_.path(), *model, {.shard_bytes = 5000});
  const fs::path path = d_.path() / "model.safetensors.index.json";
  nlohmann::json index = read_json(path).value();
  const std::string shard = index["weight_map"]["model.norm.weight"];
  std::vector<NamedTensor> tensors;
  for (const NamedTensor& t : stored_parameters(*model)) {
    if (index["weight_map"][t.name] == shard) tensors.push_back(t);
  }
  const Tensor speeds = normal({4}, DType::f32, stream_, 1);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", speeds});
  save_tensors(d_.path() / shard, tensors);
  for (auto& [name, file] : index["weight_map"].items()) file = "./" + file.get<std::string>();
  index["weight_map"]["model.layers.1.self_attn.rotary_emb.inv_freq"] = shard;
  write_text_file_atomically(path, index.dump());
  ModelFile(d_.path()).load(*other);
  expect_equal(*model, *other);
}

TEST_F(LlamaTest, KeepsTheConfigurationThatItWasReadFrom) {
  nlohmann::json config = ModelConfig(plain).to_json();
  config["use_cache"] = true;
  config["dtype"] = "float16";
  const auto read = [&] { return read_json(d_.path() / "config.json").value(); };
  const auto model = ModelConfig(plain).as_read(config).make(DType::bf16, stream_);
  model->initialise(1);
  save_model(d_.path(), *model);
  config["dtype"] = "bfloat16";
  EXPECT_EQ(read(), config);
}

TEST_F(LlamaTest, HasTheTokensThatEndATextFromTheFilesBesideIt) {
  save_model(d_.path(), *make(plain, 1), {.end_of_text = 7});
  EXPECT_EQ(ModelFile(d_.path()).stop_tokens(), std::vector<int32_t>{7});
  d_.file("generation_config.json", R"({"eos_token_id": [3, 9, 70]})");
  EXPECT_EQ(ModelFile(d_.path()).stop_tokens(), (std::vector<int32_t>{3, 9}));
}

TEST_F(LlamaTest, RefusesTokensThatEndATextAndAreNoWholeNumbers) {
  save_model(d_.path(), *make(plain, 1), {.end_of_text = 7});
  const auto read_with = [&](const std::string& generation) {
    d_.file("generation_config.json", generation);
    return ModelFile(d_.path()).stop_tokens();
  };
  for (const char* wrong :
       {R"("3")", "1.5", "true", "{}", R"([3, "4"])", "[null]", "[[3]]", "1e30"}) {
    expect_error(ErrorKind::file, {"generation_config.json: field eos_token_id"},
                 [&] { read_with(std::string(R"({"eos_token_id": )") + wrong + "}"); });
  }
  for (const char* wrong : {"", "{", "[]", "7", R"({"eos_token_id": 3, "eos_token_id": 4})"}) {
    expect_error(ErrorKind::file, {"generation_config.json"}, [&] { read_with(wrong); });
  }
  for (const char* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": 50})",
                           R"({"eos_token_id": [-1, 18446744073709551]})"}) {
    EXPECT_EQ(read_with(none), std::vector<int32_t>{7}) << none;
  }
  EXPECT_EQ(read_with(R"({"eos_token_id": [49, 50]})"), std::vector<int32_t>{49});
}

// Saves in shards, changes the index, and opens it.
TEST_F(LlamaTest, RefusesAnIndexThatDoesNotDescribeItsShards) {
  save_model(d_.path(), *make(plain, 1), {.shard_bytes = 5000});
  const fs::path index = d_.path() / "model.safetensors.index.json";
  const nlohmann::json good = read_json(index).value();
  const std::string name = "model.norm.weight", shard = good["weight_map"][name];
  const auto refused = [&](const nlohmann::json& wrong,
                           std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(wrong.dump());
    write_text_file_atomically(index, wrong.dump());
    expect_error(ErrorKind::file, words, [&] { ModelFile file(d_.path()); });
  };
  const auto with = [&](const nlohmann::json& file) {
    nlohmann::json wrong = good;
    wrong["weight_map"][name] = file;
    return wrong;
  };
  for (const char* outside : {"../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""}) {
    refused(with(outside), {"weight_map", name, "folder"});
  }
  refused(with(7), {"weight_map", name});
  refused(with("model-00001-of-00099.safetensors"), {"is missing"});
  refused(with("model-00001-of-" + shard.substr(15)), {name});
  nlohmann::json without = good;
  without["weight_map"].erase(name);
  refused(without, {shard, name, "not listed"});
  without["weight_map"]["more"] = shard;
  refused(without, {shard});
  nlohmann::json surplus = good;
  surplus["weight_map"]["more"] = shard;
  refused(surplus, {shard, "lacks", "more"});
  refused(nlohmann::json::object(), {"weight_map"});
  refused({{"weight_map", nlohmann::json::object()}}, {"weight_map"});
  fs::remove(d_.path() / shard);
  refused(good, {shard, "missing"});
}

TEST_F(LlamaTest, RefusesMalformedIndexesAndShards) {
  save_model(d_.path(), *make(plain, 1), {.shard_bytes = 5000});
  const fs::path index = d_.path() / "model.safetensors.index.json";
  const nlohmann::json good = read_json(index).value();
  const std::string name = "model.norm.weight", shard = good["weight_map"][name];
  const auto refused = [&](const std::string& text, std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(text);
    write_text_file_atomically(index, text);
    expect_error(ErrorKind::file, words, [&] { ModelFile file(d_.path()); });
  };
  for (const char* text : {"", "{", "[]", "7", R"({"weight_map": 7})", R"({"weight_map": ["a"]})",
                           R"({"weight_map": null})"}) {
    refused(text, {"model.safetensors.index.json"});
  }
  refused(R"({"weight_map": {"x": "a", "x": "b"}})", {"index.json", "x"});  // twice
  for (const nlohmann::json& file : {nlohmann::json(), nlohmann::json(true),
                                     nlohmann::json::array({shard}), nlohmann::json::object()}) {
    refused(nlohmann::json{{"weight_map", {{name, file}}}}.dump(), {"weight_map", name});
  }
  refused(nlohmann::json{{"weight_map", {{name, std::string(5000, 'n')}}}}.dump(), {"nnn"});
  refused(R"({"weight_map": {"x": "config.json"}})", {"config.json"});
  fs::create_directory(d_.path() / "folder");
  refused(R"({"weight_map": {"x": "folder"}})", {"folder"});
  std::vector<NamedTensor> twice = stored_parameters(*make(plain, 1));
  save_tensors(d_.path() / "all", twice);  // each tensor, those of other shards, too
  nlohmann::json other = good;
  other["weight_map"][name] = "all";
  refused(other.dump(), {"all", "not listed as its own"});
}

TEST_F(LlamaTest, RefusesAHeadThatDiffersFromTheEmbeddingItIsTiedTo) {
  LlamaConfig tied = plain;
  tied.tied = true;
  const auto model = make(tied, 1), other = make(tied, 2);
  save_model(d_.path(), *model);
  std::vector<NamedTensor> tensors = stored_parameters(*model);
  const auto load_with = [&](const Tensor& head) {
    auto all = tensors;
    all.push_back({"lm_head.weight", head});
    save_tensors(d_.path() / "model.safetensors", all);
    ModelFile(d_.path()).load(*other);
  };
  EXPECT_NO_THROW(load_with(tensors.front().tensor.tensor()));
  expect_equal(*model, *other);
  expect_error(ErrorKind::file, {"lm_head.weight", "embedding"}, [&] {
    load_with(normal({50, 24}, DType::f32, stream_, 5));
  });
}

}  // namespace
}  // namespace spool::testing
