// The configuration of GPT-2: its checks, and its JSON form.

#include "spool/models/families/gpt2_config.h"

#include <nlohmann/json.hpp>

#include "spool/runtime/files/json.h"
#include "tests/models/families/reference_testing.h"

namespace spool::testing {
namespace {

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
  EXPECT_EQ(gpt2_config({ModelConfig(reference_config).to_json(), "config.json"}),
            reference_config);
}

TEST(Gpt2Config, RefusesEachFieldThatIsWrong) {
  const nlohmann::json good = ModelConfig(reference_config).to_json();
  const auto open = [](const nlohmann::json& config) { gpt2_config({config, "config.json"}); };
  const auto with = [&](const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = good;
    config[field] = value;
    return config;
  };
  const auto refused = [&](const std::string& field, const nlohmann::json& value) {
    SCOPED_TRACE(sentence(field, " is ", value));
    expect_error(ErrorKind::file, {"config.json: ", field}, [&] { open(with(field, value)); });
  };
  EXPECT_NO_THROW(open(with("n_inner", nullptr)));
  EXPECT_NO_THROW(open(with("n_inner", 4 * 24)));
  EXPECT_NO_THROW(open(with("activation_function", "gelu_pytorch_tanh")));
  using Wrong = std::vector<nlohmann::json>;
  const Wrong numbers = {0,   -1,      INT64_MAX, 18446744073709551615u,  1.5,
                         "2", nullptr, true,      nlohmann::json::array()};
  for (const char* field : {"n_layer", "n_head", "n_embd", "n_positions", "vocab_size"}) {
    for (const auto& value : numbers) refused(field, value);
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
    for (const auto& value : wrong) refused(field, value);
  }
  expect_error(ErrorKind::file, {"config.json", "not a JSON object"},
               [&] { open(nlohmann::json::array()); });
}

}  // namespace
}  // namespace spool::testing
