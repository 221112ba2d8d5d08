// Which tokenizer a command uses: the one it names, or that of the model's directory.

#include "spool/models/tokenizers/tokenizer_choice.h"

#include "tests/models/tokenizers/tokenizer_testing.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;
using testing::source_folder;
using testing::TemporaryDirectory;

TEST(TokenizerChoice, IsTheOneNamedOrTheModels) {
  const TemporaryDirectory d;
  const fs::path merges = d.file("merges.txt", "t h\nth e\n");
  EXPECT_EQ(choose_tokenizer({}).name, "bytes");
  EXPECT_EQ(choose_tokenizer({.name = {}, .merges = merges}).name, "gpt2");
  EXPECT_EQ(choose_tokenizer({}, d.path()).merges, merges);
  EXPECT_EQ(choose_tokenizer({.name = "bytes", .merges = {}}, d.path()).name, "bytes");
  EXPECT_EQ(choose_tokenizer({.name = "gpt2", .merges = {}}, d.path()).merges, merges);
  d.file("run.json", R"({"tokenizer":"bytes"})");
  EXPECT_EQ(choose_tokenizer({}, d.path()).name, "bytes");
}

TEST(TokenizerChoice, PrefersTokenizerJsonUnlessTheRunHasMerges) {
  const TemporaryDirectory d, out;
  const fs::path reference = source_folder() / "tests/reference/tokenizers";
  const fs::path json = d.path() / "tokenizer.json";
  fs::copy_file(reference / "llama3.json", json);
  EXPECT_FALSE(tokenizer_in(out.path()));
  EXPECT_EQ(tokenizer_in(d.path())->json, json);
  EXPECT_EQ(choose_tokenizer({}, d.path()).name, "tokenizer.json");
  EXPECT_EQ(choose_tokenizer({.name = d.path().string(), .merges = {}}).json, json);
  EXPECT_EQ(choose_tokenizer({.name = json.string(), .merges = {}}, out.path()).json, json);
  d.file("merges.txt", "t h\nth e\n");
  for (const char* type : {"qwen2", "gpt2"}) {
    d.file("config.json", std::string(R"({"model_type":")") + type + R"("})");
    EXPECT_EQ(choose_tokenizer({}, d.path()).json, json);
    EXPECT_EQ(tokenizer_in(d.path())->json, json);
    EXPECT_EQ(choose_tokenizer({.name = d.path().string(), .merges = {}}).json, json);
  }
  d.file("run.json", R"({"tokenizer":"gpt2"})");
  EXPECT_EQ(choose_tokenizer({}, d.path()).merges, d.path() / "merges.txt");
  EXPECT_EQ(tokenizer_in(d.path())->name, "gpt2");
  d.file("run.json", R"({"tokenizer":"tokenizer.json"})");
  const auto tokenizer = open_tokenizer(choose_tokenizer({}, d.path()));
  EXPECT_EQ(tokenizer->vocabulary(), 706);
  save_tokenizer(out.path(), *tokenizer);
  EXPECT_TRUE(same_tokens(*open_tokenizer(choose_tokenizer({}, out.path())), *tokenizer));
  EXPECT_FALSE(same_tokens(*open_tokenizer({.name = "gpt2", .merges = d.path() / "merges.txt"}),
                           *tokenizer));
}

TEST(TokenizerChoice, AddsTheTokensOfAddedTokens) {
  const TemporaryDirectory d, out;
  write_tokenizer_files(d.path(), *testing::small_tokenizer());
  const auto own = choose_tokenizer({.name = d.path().string(), .merges = {}});
  EXPECT_EQ(own.name, "gpt2");
  d.file("added_tokens.json", R"({"<u>": 267, "<e>": 266, "<|endoftext|>": 265})");
  d.file("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder":
      {"266": {"content": "<e>", "rstrip": true, "special": true}}})");
  const TokenizerChoice choices[] = {
      choose_tokenizer({}, d.path()), choose_tokenizer({.name = d.path().string(), .merges = {}}),
      choose_tokenizer({.name = {}, .merges = d.path() / "merges.txt"}),
      choose_tokenizer({.name = {}, .merges = d.path() / "merges.txt"}, out.path())};
  for (const TokenizerChoice& choice : choices) {
    const auto t = open_tokenizer(choice);
    EXPECT_EQ(testing::encode(*t, "the<u> the<e>  a<|endoftext|>"),
              (std::vector<int32_t>{257, 267, 258, 266, 64, 265}));
    EXPECT_EQ(t->end_of_text(), 265);
    EXPECT_EQ(t->special_ids(), (std::vector<int32_t>{265, 266}));
    save_tokenizer(out.path(), *t);
    const auto saved = open_tokenizer(choose_tokenizer({}, out.path()));
    EXPECT_TRUE(same_tokens(*saved, *t));
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      fs::remove(out.path() / name);
    }
    fs::remove(out.path() / "added_tokens.json");
  }
  // A run continues with added tokens if it began with them, and else without.
  d.file("run.json", R"({"tokenizer":"gpt2"})");
  EXPECT_EQ(choose_tokenizer({}, d.path()).name, "gpt2");
  EXPECT_EQ(
      choose_tokenizer({.name = "tokenizer.json", .merges = d.path() / "merges.txt"}, d.path())
          .json,
      d.path() / "added_tokens.json");
  fs::remove(d.path() / "run.json");
  d.file("added_tokens.json", R"({"<u>": 3})");
  expect_error(ErrorKind::file, {"id 3 is also the id of another token"},
               [&] { open_tokenizer(choose_tokenizer({}, d.path())); });
  d.file("added_tokens.json", R"({"<u>": "x"})");
  expect_error(ErrorKind::file, {"added_tokens.json: field \"<u>\""},
               [&] { open_tokenizer(choose_tokenizer({}, d.path())); });
}

TEST(TokenizerChoice, RefusesUnknownAndContradictoryOnes) {
  const TemporaryDirectory d, empty;
  const fs::path merges = d.file("merges.txt", "t h\nth e\n");
  const auto refused = [](const TokenizerChoice& asked, std::string_view words) {
    expect_error(ErrorKind::invalid, {words}, [&] { choose_tokenizer(asked); });
  };
  refused({.name = "words", .merges = {}}, "choose bytes or gpt2");
  refused({.name = "gpt2", .merges = {}}, "merges");
  refused({.name = "bytes", .merges = merges}, "leave one of them out");
  expect_error(ErrorKind::file, {empty.path().string(), "merges"},
               [&] { choose_tokenizer({}, empty.path()); });
  d.file("run.json", R"({"tokenizer":"words"})");
  expect_error(ErrorKind::file, {"run.json", "field tokenizer"},
               [&] { choose_tokenizer({}, d.path()); });
}

}  // namespace
}  // namespace spool
