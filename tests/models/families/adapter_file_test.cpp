// Adapters in folders: what is refused, by file and field, and where their base is.

#include "spool/models/families/adapter_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "spool/kernels/elementwise.h"
#include "spool/models/families/model_file.h"
#include "spool/models/formats/named_parameters.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class AdapterFiles : public ::testing::Test {
 protected:
  AdapterFiles() {
    fs::copy(reference / "lora/qwen2", adapter, fs::copy_options::recursive);
    change("base_model_name_or_path", (reference / "llama/qwen2").string());
  }

  void change(const char* key, const json& value) {
    const fs::path file = adapter / adapter_config_name;
    json config = json::parse(std::ifstream(file));
    config[key] = value;
    std::ofstream(file) << config;
  }
  void refuses(const char* key, const json& value, std::initializer_list<std::string_view> words) {
    const json before = json::parse(std::ifstream(adapter / adapter_config_name));
    change(key, value);
    expect_error(ErrorKind::file, words, [&] { load(); });
    std::ofstream(adapter / adapter_config_name) << before;
  }
  void load() {
    const ModelFile file(adapter);
    file.load(*file.config().make(DType::f32, stream));
  }
  // Writes the adapter's tensors again, less those, and with others.
  void write(const std::function<void(std::vector<NamedTensor>&)>& edit) {
    const ModelFile file(adapter);
    const auto model = file.config().adapted(file.adapter()->lora()).make(DType::f32, stream);
    file.load(*model);
    std::vector<NamedTensor> all = stored_adapters(*model);
    edit(all);
    save_tensors(adapter / adapter_weights_name, all);
  }

  const fs::path reference = source_folder() / "tests/reference";
  const TemporaryDirectory d_;
  const fs::path adapter = d_.path() / "adapter";
  CpuStream stream{size_t{64} << 20, 2};
};

TEST_F(AdapterFiles, RefuseFieldsThatAskForMore) {
  load();
  refuses("peft_type", "IA3", {"adapter_config.json", "peft_type", "IA3"});
  refuses("use_dora", true, {"adapter_config.json", "use_dora", "true", "not supported"});
  refuses("bias", "all", {"bias", "all", "not supported"});
  refuses("modules_to_save", {"lm_head"}, {"modules_to_save", "lm_head"});
  refuses("rank_pattern", {{"q_proj", 8}}, {"rank_pattern", "q_proj"});
  refuses("alpha_pattern", {{"q_proj", 8}}, {"alpha_pattern"});
  refuses("layers_to_transform", {1, 2}, {"layers_to_transform"});
  refuses("layer_replication", {{0, 1}}, {"layer_replication"});
  refuses("exclude_modules", {"q_proj"}, {"exclude_modules"});
  refuses("target_parameters", {"w"}, {"target_parameters"});
  refuses("trainable_token_indices", {1}, {"trainable_token_indices"});
  refuses("lora_bias", true, {"lora_bias"});
  refuses("target_modules", ".*_proj", {"target_modules", "regular expression"});
  refuses("target_modules", json::array(), {"target_modules", "no linears"});
  refuses("target_modules", {3}, {"target_modules"});
  refuses("r", 0, {"field r", "0 is not"});
  refuses("r", "four", {"field r", "four"});
  refuses("lora_dropout", 1.5, {"lora_dropout", "1.5"});
  refuses("lora_alpha", 1e300, {"lora_alpha", "1e+300"});
  refuses("init_lora_weights", "pissa", {"init_lora_weights", "pissa", "not supported"});
  for (const char* key : {"modules_to_save", "rank_pattern", "exclude_modules"}) {
    change(key, json());
  }
  change("rank_pattern", json::object());
  load();
}

TEST_F(AdapterFiles, RefuseTensorsOfAnotherShape) {
  refuses("r", 5, {"adapter_model.safetensors", "lora_A", "(4, 24)", "(5, 24)"});
}

TEST_F(AdapterFiles, RefuseATensorThatIsMissing) {
  write([](auto& all) { all.pop_back(); });
  expect_error(ErrorKind::file, {"adapter_model.safetensors", "lora_B"}, [&] { load(); });
}

TEST_F(AdapterFiles, RefuseATensorThatIsSurplus) {
  const NamedTensor other{.name = "base_model.model.lm_head.lora_A.weight",
                          .tensor = Tensor({Shape{4, 24}, DType::f32}, stream)};
  write([&](auto& all) { all.push_back(other); });
  expect_error(ErrorKind::file, {"adapter_model.safetensors", "lm_head.lora_A"}, [&] { load(); });
}

TEST_F(AdapterFiles, NameTargetsThatTheModelHas) {
  change("target_modules", {"q_proj", "c_attn"});
  expect_error(ErrorKind::invalid, {"c_attn", "down_proj", "q_proj"}, [&] { load(); });
}

TEST_F(AdapterFiles, SayWhereTheirBaseIs) {
  change("base_model_name_or_path", "somebody/model");
  expect_error(ErrorKind::file, {"somebody/model", "is not here"}, [&] { ModelFile{adapter}; });
  change("base_model_name_or_path", json());
  expect_error(ErrorKind::file, {"names no model"}, [&] { ModelFile{adapter}; });
  const ModelFile given({adapter, "", reference / "llama/qwen2"});
  EXPECT_EQ(given.base(), reference / "llama/qwen2");
  const ModelFile beside({reference / "llama/qwen2", adapter});
  EXPECT_EQ(beside.adapter()->lora().rank, 4);
  expect_error(ErrorKind::invalid, {"is no adapter", "no base"}, [&] {
    ModelFile({reference / "llama/qwen2", "", reference / "llama/qwen3"});
  });
  expect_error(ErrorKind::invalid, {"is an adapter already"}, [&] {
    ModelFile({adapter, adapter, reference / "llama/qwen2"});
  });
  expect_error(ErrorKind::file, {"has no adapter_config.json"}, [&] {
    ModelFile({reference / "llama/qwen2", reference / "llama/qwen3"});
  });
}

TEST_F(AdapterFiles, AreNoBaseOfAnother) {
  expect_error(ErrorKind::file, {adapter.string(), "convert it to a model"}, [&] {
    ModelFile({adapter, "", adapter});
  });
}

TEST_F(AdapterFiles, AreReadBesideAConfigurationAlone) {
  fs::copy(reference / "llama/qwen2/config.json", adapter);
  EXPECT_TRUE(ModelFile(adapter).adapter());
  fs::copy(reference / "llama/qwen2/model.safetensors", adapter);
  EXPECT_FALSE(ModelFile(adapter).adapter());
  EXPECT_FALSE(describe_model(adapter).config.lora());
}

TEST_F(AdapterFiles, HaveTheirWeightsInSafetensors) {
  fs::rename(adapter / adapter_weights_name, adapter / "adapter_model.bin");
  expect_error(ErrorKind::file, {adapter.string(), "adapter_model.bin", "safe_serialization"},
               [&] { load(); });
}

TEST_F(AdapterFiles, OfAnotherModelAreRefused) {
  expect_error(ErrorKind::file, {"adapter_model.safetensors"}, [&] {
    const ModelFile file({reference / "lora/bases/tinyllama", adapter});
    file.load(*file.config().make(DType::f32, stream));
  });
}

// PEFT's all-linear has one rank for all, however small a matrix is.
TEST_F(AdapterFiles, MayHaveARankBeyondAMatrix) {
  const ModelFile file(reference / "llama/qwen2");
  const auto model = file.config().adapted({.rank = 25, .alpha = 1}).make(DType::f32, stream);
  EXPECT_EQ(stored_adapters(*model).front().tensor.shape()[0], 25);
}

TEST_F(AdapterFiles, OfNumbersThatAreNotFiniteAreNamed) {
  write([](auto& all) {
    launch(Fill{.out = all.front().tensor.tensor(), .value = INFINITY},
           all.front().tensor.tensor().stream());
  });
  expect_error(ErrorKind::file, {"adapter_model.safetensors", "lora_A"},
               [&] { ModelFile(adapter).check_finite(); });
}

}  // namespace
}  // namespace spool::testing
