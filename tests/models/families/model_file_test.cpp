// GPT-2 from and to the files of others: transformers and llm.c.

#include "spool/models/families/model_file.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "spool/models/families/llmc_model.h"
#include "spool/models/formats/safetensors.h"
#include "spool/models/inference/convert_model.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::content_of;
using testing::difference;
using testing::error_of;
using testing::names_in;
using testing::TemporaryDirectory;
using testing::values;

const fs::path transformers = fs::path(__FILE__).parent_path() / "reference" / "transformers";
constexpr Gpt2Config small{.layers = 2, .heads = 2, .channels = 8, .context = 6, .vocabulary = 270};

class Models : public ::testing::Test {
 protected:
  // Random, and unlike in every parameter.
  std::unique_ptr<Gpt2> make(const Gpt2Config& config, DType dtype = DType::f32) {
    auto model = std::make_unique<Gpt2>(config, dtype, stream_);
    uint64_t seed = 1;
    for (Parameter* p : model->parameters()) {
      p->data = testing::normal(p->data.shape(), dtype, stream_, ++seed);
    }
    model->clear_padding();
    return model;
  }

  std::unique_ptr<Gpt2> load(const fs::path& path, DType dtype = DType::f32) {
    const ModelFile file(path);
    auto model = std::make_unique<Gpt2>(file.config(), dtype, stream_);
    // What loading leaves out would be seen.
    for (Parameter* p : model->parameters()) {
      p->data = testing::normal(p->data.shape(), dtype, stream_, 99);
    }
    file.load(*model);
    return model;
  }

  static void expect_equal(Gpt2& a, Gpt2& b) {
    const auto left = a.parameters(), right = b.parameters();
    ASSERT_EQ(left.size(), right.size());
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(values(left[i]->data), values(right[i]->data)) << left[i]->name;
    }
  }

  void save_llmc(Gpt2& model, const fs::path& path) {
    LlmcModelWriter writer(path, model.config(), model.dtype());
    save_tensors(writer, stored_parameters(model, {.conv1d = false}));
  }

  CpuStream stream_{size_t{64} << 20, 2};
  const TemporaryDirectory d_;
};

TEST_F(Models, GiveTheLogitsOfTransformers) {
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
  EXPECT_EQ(ModelFile(transformers / "changed").config().gelu, GeluForm::exact);
  EXPECT_EQ(ModelFile(transformers / "changed").config().epsilon, 0.01);
}

TEST_F(Models, ComeBackAsTheyWereSaved) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Gpt2Config config = small;
    config.gelu = GeluForm::exact;
    config.epsilon = 1e-6;
    const auto model = make(config, dtype);
    save_model(d_.path(), *model, {});
    EXPECT_EQ(ModelFile(d_.path()).config(), config);
    EXPECT_EQ(ModelFile(d_.path() / "model.safetensors").dtype(), dtype);
    expect_equal(*load(d_.path(), dtype), *model);
  }
}

TEST_F(Models, OfLlmc) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = make(small, dtype);
    const fs::path path = d_.path() / "model.bin";
    save_llmc(*model, path);
    EXPECT_EQ(ModelFile(path).config(), small);
    EXPECT_EQ(ModelFile(path).dtype(), dtype);
    expect_equal(*load(path, dtype), *model);
  }
}

// Against the layout as it is written down, byte by byte.
TEST_F(Models, OfLlmcAreLaidOutAsDocumented) {
  const auto model = make(small);
  save_llmc(*model, d_.path() / "m.bin");
  const std::string file = content_of(d_.path() / "m.bin");
  int32_t header[256];
  std::memcpy(header, file.data(), sizeof(header));
  const int32_t expected[] = {20240326, 3, 6, 270, 2, 2, 8, 384};
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(header[i], i < 8 ? expected[i] : 0);
  const auto number = [&](size_t at) {
    float x = 0;
    std::memcpy(&x, file.data() + 1024 + 4 * at, 4);
    return x;
  };
  const auto parameters = model->parameters();
  const auto wte = read<float>(parameters[0]->data), wpe = read<float>(parameters[1]->data);
  EXPECT_EQ(number(269 * 8 + 7), wte[269 * 8 + 7]);
  for (size_t i = 270 * 8; i < 384 * 8; ++i) ASSERT_EQ(number(i), 0);
  EXPECT_EQ(number(384 * 8 + 3), wpe[3]);
  // The second layer's qkv weights: after wte, wpe, 2 x ln1w, 2 x ln1b and the first layer's.
  const size_t qkvw = 384 * 8 + 6 * 8 + 4 * 8;
  const auto second = read<float>(parameters[2 + 12 + 2]->data);
  EXPECT_EQ(parameters[2 + 12 + 2]->name, std::string("h.1.attn.c_attn.weight"));
  for (size_t i = 0; i < 192; ++i) ASSERT_EQ(number(qkvw + 192 + i), second[i]);
  const auto last = read<float>(parameters.back()->data);
  EXPECT_EQ(number((file.size() - 1024) / 4 - 1), last.back());
}

TEST_F(Models, OfLlmcHaveTheSizesThatLlmcHas) {
  const auto size = [&](DType dtype) {
    const LlmcModelWriter writer(d_.path() / "124m", Gpt2Config{}, dtype);
    const StoredTensor& last = writer.tensors().back();
    return 1024 + last.begin + last.spec.nbytes();
  };
  EXPECT_EQ(size(DType::f32), 497'904'640u);
  EXPECT_EQ(size(DType::bf16), 248'952'832u);
}

TEST_F(Models, OfLlmcEachFieldWrongInTurn) {
  save_llmc(*make(small), d_.path() / "good.bin");
  const std::string good = content_of(d_.path() / "good.bin");
  const auto error = [&](size_t field, int32_t value) {
    std::string file = good;
    std::memcpy(file.data() + 4 * field, &value, 4);
    return error_of([&] { LlmcModelReader reader(d_.file("m.bin", file)); });
  };
  EXPECT_EQ(error(0, 20240326), "");
  for (size_t field = 0; field < 8; ++field) {
    for (const int32_t value : {-1, INT32_MIN, INT32_MAX, 0, 1 << 20, 7}) {
      if (field == 3 && value == 7) continue;  // fewer tokens in as many rows are well
      const std::string said = error(field, value);
      EXPECT_TRUE(contains(said, "header field") || contains(said, "bytes long"))
          << field << " " << value << ": " << said;
    }
  }
  EXPECT_TRUE(contains(error(1, 4), "header field 1, version, is 4"));
  EXPECT_TRUE(contains(error(5, 3), "must divide the 8 channels"));
  EXPECT_TRUE(contains(error(7, 269), "between the vocabulary, 270"));
  for (size_t size = 0; size < good.size(); size += size < 1100 ? 1 : 997) {
    const fs::path cut = d_.file("m.bin", good.substr(0, size));
    EXPECT_TRUE(contains(error_of([&] { LlmcModelReader reader(cut); }), "m.bin: ")) << size;
  }
  EXPECT_NE(error_of([&] { LlmcModelReader reader(d_.file("m.bin", good + "x")); }), "");
  EXPECT_TRUE(contains(error_of([&] { ModelFile file(d_.file("x.bin", "not a model")); }),
                       "is not a model file of llm.c"));
}

TEST_F(Models, ConfigEachFieldWrongInTurn) {
  const nlohmann::json good = to_json(small);
  const auto error = [&](const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = good;
    config[field] = value;
    return error_of([&] { gpt2_config({config, "config.json"}); });
  };
  EXPECT_EQ(error("n_inner", nullptr), "");
  EXPECT_EQ(error("n_inner", 32), "");
  EXPECT_EQ(error("activation_function", "gelu_pytorch_tanh"), "");
  using Wrong = std::vector<nlohmann::json>;
  const Wrong numbers = {0,
                         -1,
                         1.5,
                         "2",
                         nullptr,
                         true,
                         nlohmann::json::array(),
                         18446744073709551615u,
                         9223372036854775807};
  for (const char* field : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    for (const auto& value : numbers) {
      const std::string said = error(field, value);
      EXPECT_TRUE(contains(said, "config.json: ")) << field << " " << value << ": " << said;
    }
    nlohmann::json without = good;
    without.erase(field);
    EXPECT_TRUE(contains(error_of([&] { gpt2_config({without, "c"}); }), field));
  }
  const std::pair<const char*, Wrong> others[] = {
      {"layer_norm_epsilon", {0, -1, "x", nullptr, 1}},
      {"activation_function", {"relu", 3, nullptr, nlohmann::json::object()}},
      {"model_type", {"llama", 3}},
      {"n_inner", {31, "32"}},
      {"scale_attn_weights", {false, 3}},
      {"scale_attn_by_inverse_layer_idx", {true}},
      {"add_cross_attention", {true}},
      {"tie_word_embeddings", {false}}};
  for (const auto& [field, wrong] : others) {
    for (const auto& value : wrong) EXPECT_TRUE(contains(error(field, value), field)) << value;
  }
  EXPECT_NE(error_of([] { gpt2_config({nlohmann::json::array(), "c"}); }), "");
}

// The tensors of a small model, changed as a test likes, as a file beside its config.json.
TEST_F(Models, TensorsMissingSurplusOrOfAnotherShape) {
  const auto model = make(small);
  write_text_file_atomically(d_.path() / "config.json", to_json(small).dump());
  const auto error = [&](const std::function<void(std::vector<NamedTensor>&)>& change) {
    std::vector<NamedTensor> tensors = stored_parameters(*model);
    change(tensors);
    save_tensors(d_.path() / "m.safetensors", tensors);
    return error_of([&] { load(d_.path() / "m.safetensors"); });
  };
  const Tensor other = testing::normal({3, 5}, DType::f32, stream_, 1);
  const Tensor wte = model->parameters()[0]->data;
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_TRUE(contains(error([](auto& t) { t.erase(t.begin() + 4); }),
                       "has no tensor \"h.0.attn.c_attn.weight\""));
  EXPECT_TRUE(contains(error([&](auto& t) { t.push_back({"more", other}); }), "tensor \"more\""));
  EXPECT_TRUE(contains(error([&](auto& t) { t[1].tensor = other; }), "\"wpe.weight\" is "));
  EXPECT_TRUE(contains(error([](auto& t) { t[4].transposed = false; }), "stored as (in, out)"));
  const auto with_head = [&](const Tensor& head) {
    return error([&](auto& t) { t.push_back({"lm_head.weight", head}); });
  };
  EXPECT_EQ(with_head(wte.slice({0, 270})), "");
  EXPECT_TRUE(contains(with_head(other), "lm_head.weight"));
  EXPECT_TRUE(contains(with_head(testing::normal({270, 8}, DType::f32, stream_, 5)), "embedding"));
  EXPECT_EQ(error([&](auto& t) { t.push_back({"h.1.attn.bias", other}); }), "");
  const Tensor whole({Shape{6, 8}, DType::i32}, stream_);
  EXPECT_TRUE(contains(error([&](auto& t) { t[1].tensor = whole; }), "cannot become"));
}

TEST_F(Models, SayWhatEndsAText) {
  save_model(d_.path(), *make(small), 7);
  EXPECT_EQ(ModelFile(d_.path()).end_of_text(), 7);
  convert_model(ModelFile(d_.path()), d_.path() / "other", DType::f32);
  EXPECT_EQ(read_json(d_.path() / "other" / "config.json").value()["eos_token_id"], 7);
  save_model(d_.path(), *make(small), {});
  EXPECT_EQ(ModelFile(d_.path()).end_of_text(), std::nullopt);
}

// What is in the directory of a run from before is not what `latest` names.
TEST_F(Models, OfARunAreItsLatest) {
  const auto first = make(small), second = make(small, DType::bf16);
  save_model(d_.path(), *first, {});
  fs::create_directory(d_.path() / "step-000001");
  save_model(d_.path() / "step-000001", *second, {});
  d_.file("step-000001/run.json", "{}");
  fs::create_directory_symlink("step-000001", d_.path() / "latest");
  EXPECT_EQ(ModelFile(d_.path()).dtype(), DType::bf16);
}

TEST_F(Models, WhatIsNoModelIsASentence) {
  const auto error = [](const fs::path& path) { return error_of([&] { ModelFile file(path); }); };
  EXPECT_TRUE(contains(error(d_.path() / "none"), "no such file"));
  EXPECT_TRUE(contains(error(d_.path()), "has neither model.safetensors nor"));
  EXPECT_TRUE(contains(
      error(d_.file("m.safetensors", content_of(transformers / "published" / "model.safetensors"))),
      "config.json is missing"));
  d_.file("pytorch_model.bin", "x");
  EXPECT_TRUE(contains(error(d_.path()), "safe_serialization"));
  d_.file("model.safetensors.index.json", "{}");
  EXPECT_TRUE(contains(error(d_.path()), "several files"));
  EXPECT_NE(error(d_.file("text", "hello")), "");
}

TEST_F(Models, AreConverted) {
  const auto model = make(small);
  save_model(d_.path(), *model, {});
  d_.file("merges.txt", "a b\n");
  const auto to = [&](const fs::path& in, const std::string& out, DType dtype = DType::f32) {
    convert_model(ModelFile(in), d_.path() / out, dtype);
    return d_.path() / out;
  };
  const fs::path llmc = to(d_.path(), "m.bin"), half = to(d_.path(), "half.bin", DType::bf16);
  expect_equal(*load(llmc), *model);
  EXPECT_EQ(ModelFile(half).dtype(), DType::bf16);
  expect_equal(*load(to(llmc, "back/")), *model);
  using Names = std::set<std::string>;
  EXPECT_EQ(names_in(d_.path() / "back"), (Names{"config.json", "merges.txt", "model.safetensors",
                                                 "tokenizer_config.json", "vocab.json"}));
  EXPECT_EQ(read_json(d_.path() / "back" / "vocab.json").value()["ab"], 256);
  EXPECT_TRUE(contains(error_of([&] { to(llmc, "back"); }), "is there already"));
  EXPECT_TRUE(contains(error_of([&] { to(llmc, "half.bin"); }), "is there already"));
  EXPECT_NE(error_of([&] { to(llmc, "none/m.bin"); }), "");
  EXPECT_NE(error_of([&] { to(llmc, "f64.bin", DType::f64); }), "");
  EXPECT_EQ(read_json(d_.path() / "back" / "config.json").value()["eos_token_id"], 257);
  const TemporaryDirectory larger;  // a vocabulary that cannot be the model's is left out
  save_model(larger.path(), *make(small), {});
  std::string many;
  for (const char a : std::string("abcdefgh")) many += sentence(a, " ", a, "\n", a, " x\n");
  larger.file("merges.txt", many);
  to(larger.path(), "larger");
  EXPECT_FALSE(fs::exists(d_.path() / "larger" / "merges.txt"));
  Gpt2Config other = small;
  other.epsilon = 0.1;
  const TemporaryDirectory changed;
  save_model(changed.path(), *make(other), {});
  EXPECT_TRUE(contains(error_of([&] { to(changed.path(), "e.bin"); }), "epsilon"));
  EXPECT_FALSE(names_in(d_.path()).contains("e.bin"));
  EXPECT_FALSE(names_in(d_.path()).contains(".e.bin.partial"));
}

}  // namespace
}  // namespace spool
