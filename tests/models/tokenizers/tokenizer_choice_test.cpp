// Which tokenizer a command uses: the one it names, or the one of the model's directory.

#include "spool/models/tokenizers/tokenizer_choice.h"

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

TEST(TokenizerChoice, PrefersTokenizerJsonUnlessTheModelIsAGpt2) {
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
  EXPECT_EQ(choose_tokenizer({}, d.path()).name, "gpt2");
  d.file("config.json", R"({"model_type":"qwen2"})");
  EXPECT_EQ(choose_tokenizer({}, d.path()).json, json);
  d.file("config.json", R"({"model_type":"gpt2"})");
  EXPECT_EQ(choose_tokenizer({}, d.path()).name, "gpt2");
  d.file("run.json", R"({"tokenizer":"tokenizer.json"})");
  const auto tokenizer = open_tokenizer(choose_tokenizer({}, d.path()));
  EXPECT_EQ(tokenizer->vocabulary(), 706);
  save_tokenizer(out.path(), *tokenizer);
  EXPECT_TRUE(same_tokens(*open_tokenizer(choose_tokenizer({}, out.path())), *tokenizer));
  EXPECT_FALSE(same_tokens(*open_tokenizer({.name = "gpt2", .merges = d.path() / "merges.txt"}),
                           *tokenizer));
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
