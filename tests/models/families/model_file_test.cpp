// runs: threads
// GPT-2 from and to the files of transformers, and the choice of a file in a directory.

#include "spool/models/families/model_file.h"

#include <nlohmann/json.hpp>

#include "spool/models/formats/safetensors.h"
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

using ModelFileChoice = ModelFileTest;

// An older model in the directory of a run is not the one that `latest` names.
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

}  // namespace
}  // namespace spool::testing
