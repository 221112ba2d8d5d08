// generation_config.json, and each of its fields wrong.

#include "spool/models/families/generation_config.h"

#include <gtest/gtest.h>

#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

TEST(GenerationConfig, HasWhatTheFileSays) {
  const TemporaryDirectory d;
  EXPECT_EQ(read_generation_config(d.path()).temperature, std::nullopt);
  d.file("generation_config.json",
         R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": null,
             "repetition_penalty": 1.1, "eos_token_id": [1, 2]})");
  const GenerationConfig all = read_generation_config(d.path());
  EXPECT_EQ(all.temperature, 0.6);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.top_p, 0.95);
  EXPECT_EQ(all.min_p, std::nullopt);
  EXPECT_EQ(all.repetition_penalty, 1.1);
}

TEST(GenerationConfig, SamplingCountsOnlyWhereItIsAskedFor) {
  const TemporaryDirectory d;
  for (const char* begin : {"{", R"({"do_sample": false, )", R"({"do_sample": null, )"}) {
    d.file("generation_config.json",
           std::string(begin) + R"("temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1})");
    const GenerationConfig all = read_generation_config(d.path());
    EXPECT_EQ(all.temperature, std::nullopt);
    EXPECT_EQ(all.top_k, std::nullopt);
    EXPECT_EQ(all.repetition_penalty, 1.1);
  }
}

TEST(GenerationConfig, ATopKOfMinusOneIsNone) {
  const TemporaryDirectory d;
  d.file("generation_config.json", R"({"do_sample": true, "top_k": -1})");
  EXPECT_EQ(read_generation_config(d.path()).top_k, 0);
}

TEST(GenerationConfig, NamesTheTokensThatEndATextOrSaysNothingOfThem) {
  const TemporaryDirectory d;
  using Tokens = std::vector<int32_t>;
  const auto tokens = [&](const char* text) {
    d.file("generation_config.json", text);
    return read_generation_config(d.path()).stop_tokens;
  };
  EXPECT_EQ(tokens("{}"), std::nullopt);
  EXPECT_EQ(tokens(R"({"eos_token_id": null})"), Tokens{});
  EXPECT_EQ(tokens(R"({"eos_token_id": []})"), Tokens{});
  EXPECT_EQ(tokens(R"({"eos_token_id": -1})"), Tokens{});
  EXPECT_EQ(tokens(R"({"eos_token_id": 7})"), Tokens{7});
  EXPECT_EQ(tokens(R"({"eos_token_id": [7, 3, 99999999999]})"), (Tokens{7, 3}));
}

TEST(GenerationConfig, RefusesEachFieldThatIsWrong) {
  const TemporaryDirectory d;
  for (const char* wrong :
       {R"("do_sample": 1)", R"("temperature": -1)", R"("temperature": "warm")", R"("top_k": -2)",
        R"("top_k": 1.5)", R"("eos_token_id": "2")", R"("eos_token_id": [1, null])",
        R"("top_p": 0)", R"("top_p": 1.1)", R"("min_p": 2)", R"("min_p": [])",
        R"("repetition_penalty": 0)", R"("repetition_penalty": true)"}) {
    d.file("generation_config.json", std::string("{") + wrong + "}");
    const std::string field(wrong + 1, std::string_view(wrong).find(':') - 2);
    expect_error(ErrorKind::file, {"generation_config.json", field},
                 [&] { read_generation_config(d.path()); });
  }
  for (const char* wrong : {"", "7", "{"}) {
    d.file("generation_config.json", wrong);
    expect_error(ErrorKind::file, {"generation_config.json"},
                 [&] { read_generation_config(d.path()); });
  }
}

}  // namespace
}  // namespace spool::testing
