// runs: numbers
// GPT-2's logits and gradients against PyTorch (tests/reference/README.md), and its configuration.

#include "spool/models/families/gpt2.h"

#include <nlohmann/json.hpp>

#include "spool/runtime/files/json.h"
#include "tests/models/families/reference_testing.h"

namespace spool::testing {
namespace {

class Gpt2Reference : public ReferenceModel {
 protected:
  double tolerance() const { return GetParam().dtype == DType::f64 ? 1e-12 : 1e-5; }
};
INSTANTIATE_TEST_SUITE_P(Gpt2, Gpt2Reference,
                         ::testing::ValuesIn(with_cuda({{DeviceType::cpu, DType::f32},
                                                        {DeviceType::cpu, DType::f64}})),
                         name_of);

TEST_P(Gpt2Reference, LogitsAreThoseOfPyTorch) {
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor logits = model.logits(model.hidden(tape.input(tokens))).tensor();
  const auto padded = values(logits), theirs = values(load("logits", {B, T, 61}, DType::f64));
  std::vector<double> ours;
  for (size_t i = 0; i < padded.size(); ++i) {
    if (i % 64 < 61) ours.push_back(padded[i]);
  }
  EXPECT_LE(difference(ours, theirs), tolerance());
}

TEST_P(Gpt2Reference, LossAndGradientsAreThoseOfPyTorch) {
  const double loss = values(load("loss", {}, DType::f64)).front();
  for (const bool in_forward : {false, true}) {
    for (const int chunks : {1, 5}) {
      Plan plan;
      plan.chunks.assign(64, 1);
      TapeOptions options{.backward_follows = in_forward};
      {
        Tape probe(stream, {.recording = false});
        model.loss(probe.input(tokens), probe.input(targets));
        plan.chunks[probe.nodes().size() - 1] = chunks;
      }
      options.plan = plan;
      Tape tape(stream, options);
      const Var ours = model.loss(tape.input(tokens), tape.input(targets));
      tape.backward(ours);
      EXPECT_NEAR(values(ours.tensor()).front(), loss, tolerance() * loss);
      expect_tensors("grad.", gradients(), tolerance());
      for (Parameter* p : model.parameters()) p->grad = {};
    }
  }
}

TEST(Gpt2Config, CountsParametersAndPadsTheVocabulary) {
  EXPECT_EQ(Gpt2Config{}.parameter_count(), 124439808);
  EXPECT_EQ(Gpt2Config{}.padded_vocabulary(), 50304);
}

TEST(Gpt2Config, RefusesNumbersThatMakeNoModel) {
  const auto refused = [](const Gpt2Config& c, std::initializer_list<std::string_view> words) {
    expect_error(ErrorKind::invalid, words, [&] { c.validate(); });
  };
  refused({.heads = 5}, {"5 heads", "768 channels"});
  refused({.layers = 0}, {"layers", "0"});
  refused({.channels = -12}, {"channels", "-12"});
  refused({.vocabulary = 1 << 30}, {"vocab", "1073741824"});
  refused({.context = int64_t{1} << 40}, {"context", "1099511627776"});
}

TEST(Gpt2Config, IsReadBackFromItsJson) {
  EXPECT_EQ(gpt2_config({to_json(reference_config), "config.json"}), reference_config);
}

TEST(Gpt2Config, RefusesEachFieldThatIsWrong) {
  const nlohmann::json good = to_json(reference_config);
  const auto open = [](const nlohmann::json& config) { gpt2_config({config, "config.json"}); };
  const auto with = [&](const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = good;
    config[field] = value;
    return config;
  };
  const auto refused = [&](const std::string& field, const nlohmann::json& value,
                           std::string_view word) {
    SCOPED_TRACE(sentence(field, " is ", value));
    expect_error(ErrorKind::file, {"config.json: ", word}, [&] { open(with(field, value)); });
  };
  EXPECT_NO_THROW(open(with("n_inner", nullptr)));
  EXPECT_NO_THROW(open(with("n_inner", 4 * 24)));
  EXPECT_NO_THROW(open(with("activation_function", "gelu_pytorch_tanh")));
  using Wrong = std::vector<nlohmann::json>;
  const Wrong no_numbers = {
      1.5, "2", nullptr, true, nlohmann::json::array(), 18446744073709551615u};
  for (const char* field : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    for (const auto& value : no_numbers) refused(field, value, field);
    for (const int64_t value : {int64_t{0}, int64_t{-1}, INT64_MAX}) refused(field, value, "");
    nlohmann::json without = good;
    without.erase(field);
    expect_error(ErrorKind::file, {"config.json: ", field}, [&] { open(without); });
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
    for (const auto& value : wrong) refused(field, value, field);
  }
  expect_error(ErrorKind::file, {"config.json", "not a JSON object"},
               [&] { open(nlohmann::json::array()); });
}

}  // namespace
}  // namespace spool::testing
