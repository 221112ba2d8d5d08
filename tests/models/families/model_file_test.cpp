// runs: threads
// GPT-2 in the files of transformers, written and read, and the choice of a file in a directory.

#include "spool/models/families/model_file.h"

#include <nlohmann/json.hpp>

#include "spool/models/families/families.h"
#include "spool/models/formats/safetensors.h"
#include "spool/runtime/files/json.h"
#include "tests/models/families/model_file_testing.h"
#include "tests/runtime/source_folder.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

const fs::path transformers = source_folder() / "tests/reference/transformers";

using ModelFileOfTransformers = ModelFileTest;

TEST_F(ModelFileOfTransformers, GivesItsLogits) {
  for (const char* name : {"published", "changed"}) {
    const auto model = load(transformers / name);
    const SafetensorsReader expected(transformers / name / "expected.safetensors");
    const Tensor tokens({Shape{2, 16}, DType::i32}, stream_);
    const Tensor wanted({Shape{2, 16, 50}, DType::f32}, stream_);
    load_tensors(expected, std::vector<NamedTensor>{{"tokens", tokens}, {"logits", wanted}});
    Tape tape(stream_, {.recording = false, .training = false});
    const std::vector<double> all =
        values(model->logits(model->hidden(tape.input(tokens))).tensor());
    std::vector<double> ours;  // without the padding, from 50 to 64
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % 64 < 50) ours.push_back(all[i]);
    }
    EXPECT_LT(difference(ours, values(wanted)), 2e-6) << name;
  }
  EXPECT_EQ(ModelFile(transformers / "changed").config().as<Gpt2Config>()->gelu, GeluForm::exact);
  EXPECT_EQ(ModelFile(transformers / "changed").config().as<Gpt2Config>()->epsilon, 0.01);
}

TEST_F(ModelFileOfTransformers, LoadsWhatWasSaved) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Gpt2Config config = small;
    config.gelu = GeluForm::exact;
    config.epsilon = 1e-6;
    const auto model = make(config, dtype);
    save_model(d_.path(), *model);
    EXPECT_EQ(ModelFile(d_.path()).config(), config);
    EXPECT_EQ(ModelFile(d_.path() / "model.safetensors").dtype(), dtype);
    expect_equal(*load(d_.path(), dtype), *model);
  }
}

// Saves the tensors of a small model, changed by `change`, beside its config.json, and loads them.
TEST_F(ModelFileOfTransformers, RefusesTensorsMissingSurplusOrOfAnotherShape) {
  const auto model = make(small);
  write_text_file_atomically(d_.path() / "config.json", ModelConfig(small).to_json().dump());
  using Change = std::function<void(std::vector<NamedTensor>&)>;
  const auto load_changed = [&](const Change& change) {
    std::vector<NamedTensor> tensors = stored_parameters(*model);
    change(tensors);
    save_tensors(d_.path() / "m.safetensors", tensors);
    load(d_.path() / "m.safetensors");
  };
  const auto refused = [&](std::string_view words, const Change& change) {
    expect_error(ErrorKind::file, {"m.safetensors: ", words}, [&] { load_changed(change); });
  };
  const Tensor other = normal({3, 5}, DType::f32, stream_, 1);
  const Tensor integers({Shape{6, 8}, DType::i32}, stream_);
  EXPECT_NO_THROW(load_changed([](auto&) {}));
  EXPECT_NO_THROW(load_changed([&](auto& t) { t.push_back({"h.1.attn.bias", other}); }));  // a mask
  refused("has no tensor \"h.0.attn.c_attn.weight\"", [](auto& t) { t.erase(t.begin() + 4); });
  refused("tensor \"more\"", [&](auto& t) { t.push_back({"more", other}); });
  refused("\"wpe.weight\" is ", [&](auto& t) { t[1].tensor = other; });
  refused("stored as (in, out)", [](auto& t) { t[4].transposed = false; });
  refused("cannot become", [&](auto& t) { t[1].tensor = integers; });
}

TEST_F(ModelFileOfTransformers, MayHaveAHeadThatIsTheEmbedding) {
  const auto model = make(small);
  write_text_file_atomically(d_.path() / "config.json", ModelConfig(small).to_json().dump());
  const auto load_with_head = [&](const Tensor& head) {
    std::vector<NamedTensor> tensors = stored_parameters(*model);
    tensors.push_back({"lm_head.weight", head});
    save_tensors(d_.path() / "m.safetensors", tensors);
    load(d_.path() / "m.safetensors");
  };
  EXPECT_NO_THROW(load_with_head(model->parameters()[0]->data.slice({0, 270})));
  for (const Shape& shape : {Shape{3, 5}, Shape{270, 8}}) {
    expect_error(ErrorKind::file, {"lm_head.weight", "embedding"},
                 [&] { load_with_head(normal(shape, DType::f32, stream_, 5)); });
  }
}

TEST_F(ModelFileOfTransformers, IsWrittenWithTheMetadataThatTransformersDemands) {
  const auto metadata = [&] {
    return SafetensorsReader(d_.path() / "model.safetensors").metadata();
  };
  save_model(d_.path(), *make(small));
  EXPECT_EQ(metadata(), (Metadata{{"format", "pt"}}));
  save_model(d_.path(), *make(small), {.metadata = {{"by", "a test"}}});
  EXPECT_EQ(metadata(), (Metadata{{"format", "pt"}, {"by", "a test"}}));
}

TEST_F(ModelFileOfTransformers, HasTheTokenThatEndsAText) {
  save_model(d_.path(), *make(small), {.end_of_text = 7});
  EXPECT_EQ(ModelFile(d_.path()).stop_tokens(), std::vector<int32_t>{7});
  save_model(d_.path(), *make(small));
  EXPECT_TRUE(ModelFile(d_.path()).stop_tokens().empty());
}

TEST_F(ModelFileOfTransformers, KeepsTheConfigurationThatItWasReadFrom) {
  nlohmann::json config = ModelConfig(small).to_json();
  config.update({{"resid_pdrop", 0.0},
                 {"bos_token_id", 3},
                 {"eos_token_id", nullptr},
                 {"pad_token_id", 9},
                 {"torch_dtype", "float32"},
                 {"task_specific_params", {{"text-generation", {{"max_length", 50}}}}}});
  const auto model = model_config(JsonField(config, "config.json")).make(DType::bf16, stream_);
  save_model(d_.path(), *model, {.end_of_text = 7});
  config["torch_dtype"] = "bfloat16";
  EXPECT_EQ(read_json(d_.path() / "config.json").value(), config);
}

TEST_F(ModelFileOfTransformers, OfAnEarlyVersionGetsItsType) {
  nlohmann::json config = ModelConfig(small).to_json();
  config.erase("model_type");
  config["summary_type"] = "cls_index";
  save_model(d_.path(), *model_config(JsonField(config, "config.json")).make(DType::f32, stream_));
  const nlohmann::json saved = read_json(d_.path() / "config.json").value();
  EXPECT_EQ(saved["model_type"], "gpt2");
  EXPECT_EQ(saved["summary_type"], "cls_index");
  EXPECT_FALSE(saved.contains("torch_dtype"));
}

using ModelFileChoice = ModelFileTest;

// An older model in the directory of a run is ignored: `latest` names another.
TEST_F(ModelFileChoice, TakesTheLatestCheckpointOfARun) {
  const auto first = make(small), second = make(small, DType::bf16);
  save_model(d_.path(), *first);
  fs::create_directory(d_.path() / "step-000001");
  save_model(d_.path() / "step-000001", *second);
  d_.file("step-000001/run.json", "{}");
  fs::create_directory_symlink("step-000001", d_.path() / "latest");
  EXPECT_EQ(ModelFile(d_.path()).dtype(), DType::bf16);
}

TEST_F(ModelFileChoice, RefusesPathsWithoutAModel) {
  const auto refused = [](const fs::path& path, std::string_view words) {
    expect_error(ErrorKind::file, {path.string(), words}, [&] { ModelFile file(path); });
  };
  refused(d_.path() / "none", "no such file");
  refused(d_.path(), "has neither model.safetensors, nor");
  const std::string weights = content_of(transformers / "published" / "model.safetensors");
  refused(d_.file("m.safetensors", weights), "config.json is missing");
  refused(d_.file("x.bin", "not a model"), "is not a model file of llm.c");
  refused(d_.file("text", "hello"), "too short for a safetensors file");
}

TEST_F(ModelFileChoice, NamesTheOptionOfTransformersThatSavesAFileItReads) {
  const auto refused = [&](std::string_view words) {
    expect_error(ErrorKind::file, {d_.path().string(), words}, [&] { ModelFile file(d_.path()); });
  };
  d_.file("pytorch_model.bin", "x");
  refused("safe_serialization");
}

// Each folder has a config.json and one other file.
TEST_F(ModelFileChoice, NamesWhatAFolderHasInPlaceOfWeights) {
  const auto refused = [&](const std::string& file, const std::string& content,
                           std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(file);
    const TemporaryDirectory d;
    d.file("config.json", ModelConfig(small).to_json().dump());
    fs::create_directories((d.path() / file).parent_path());
    d.file(file, content);
    expect_error(ErrorKind::file, words, [&] { ModelFile model(d.path()); });
  };
  refused("adapter_config.json",
          R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})",
          {"adapter_config.json", "no adapter_model.safetensors"});
  refused("adapter_model.safetensors", "", {"an adapter", "without its adapter_config.json"});
  refused("model-Q4.gguf", "GGUF", {"model-Q4.gguf", "GGUF"});
  refused("pytorch_model-00001-of-00002.bin", "", {"pytorch_model-00001", "safe_serialization"});
  refused("pytorch_model.bin.index.json", "{}", {"pytorch_model.bin", "safe_serialization"});
  refused("consolidated.00.pth", "", {"consolidated.00.pth", "safe_serialization"});
  refused("tf_model.h5", "", {"HDF5"});
  refused("model.safetensors.incomplete", "", {"model.safetensors.incomplete", "download"});
  refused(".cache/huggingface/download/x.incomplete", "", {"x.incomplete", "download"});
  refused("model-00001-of-00002.safetensors", "", {"without their index"});
  refused("other.safetensors", "", {"other.safetensors", "give the file"});
}

TEST_F(ModelFileChoice, NamesTheSnapshotInACacheOfTheHub) {
  const fs::path cache = d_.path() / "models--some--model",
                 snapshot = cache / "snapshots" / "c0ffee";
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots");
  const auto refused = [&](const fs::path& path, std::string_view words) {
    expect_error(ErrorKind::file, {path.string(), words}, [&] { ModelFile model(path); });
    expect_error(ErrorKind::file, {path.string(), words}, [&] { describe_model(path); });
  };
  refused(cache, "has no snapshot");
  fs::create_directories(snapshot);
  fs::create_directories(cache / "snapshots" / "d0");
  refused(cache, (cache / "snapshots" / "d0").string());
  fs::create_directories(cache / "refs");
  d_.file("models--some--model/refs/main", "c0ffee");
  refused(cache, snapshot.string());
  refused(d_.path(), snapshot.string());
}

TEST_F(ModelFileChoice, RefusesFilesOfOtherFormsByWhatTheyAre) {
  using std::string_literals::operator""s;
  const auto refused = [](const fs::path& path, std::string_view words) {
    expect_error(ErrorKind::file, {path.string(), words}, [&] { ModelFile file(path); });
  };
  refused(d_.file("pytorch_model.bin", "\x80\2}q"), "pickle");
  refused(d_.file("x.bin", "PK\x03\x04" + std::string(22, '\0') + "\x10\0\0\0archive/data.pkl"s),
          "PyTorch");
  refused(d_.file("adapter_model.safetensors", ""), "give its folder");
  refused(d_.file("x.gguf", "GGUF\3\0\0\0\0"s), "GGUF");
}

// A plan needs no weights.
TEST_F(ModelFileChoice, IsDescribedByItsConfigurationAlone) {
  const fs::path config = d_.file("config.json", ModelConfig(small).to_json().dump());
  for (const fs::path& path : {d_.path(), config}) {
    EXPECT_EQ(describe_model(path).config, small);
    EXPECT_EQ(describe_model(path).directory, fs::absolute(d_.path()));
    expect_error(ErrorKind::file, {"neither model.safetensors"}, [&] { ModelFile file(path); });
  }
  fs::remove(config);
  expect_error(ErrorKind::file, {"config.json is missing"}, [&] { describe_model(d_.path()); });
}

}  // namespace
}  // namespace spool::testing
