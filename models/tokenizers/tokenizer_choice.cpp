#include "spool/models/tokenizers/tokenizer_choice.h"

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr const char* bytewise = "bytes";
constexpr const char* gpt2 = "gpt2";

void check_name(const std::string& name) {
  check_setting(name.empty() || name == bytewise || name == gpt2, {"tokenizer"},
                "there is no tokenizer \"", name, "\"; choose bytes or gpt2");
}

// The tokenizer that a checkpoint's run.json names; empty if there is no run.json.
std::string name_in_run(const fs::path& directory) {
  const fs::path file = directory / "run.json";
  if (!path_exists(file)) return {};
  const JsonField field = read_json(file).member("tokenizer");
  const std::string name = field.string();
  field.expect(name == bytewise || name == gpt2, excerpt(name),
               " is neither \"bytes\" nor \"gpt2\"");
  return name;
}

TokenizerChoice complete(TokenizerChoice choice) {
  check_setting(choice.name == gpt2 || choice.merges.empty(), {"merges", "tokenizer"},
                choice.merges.string(), " is GPT-2's vocabulary, and the tokenizer is ",
                choice.name, "; leave one of them out");
  check_setting(choice.name != gpt2 || !choice.merges.empty(), {"merges"},
                "the gpt2 tokenizer needs its vocabulary: the merges.txt that comes with every "
                "GPT-2, or llm.c's gpt2_tokenizer.bin");
  return choice;
}

}  // namespace

std::optional<fs::path> vocabulary_in(const fs::path& directory) {
  for (const char* name : {"merges.txt", "gpt2_tokenizer.bin"}) {
    if (path_exists(directory / name)) return directory / name;
  }
  return {};
}

TokenizerChoice choose_tokenizer(const TokenizerChoice& asked) {
  check_name(asked.name);
  TokenizerChoice choice = asked;
  if (choice.name.empty()) choice.name = choice.merges.empty() ? bytewise : gpt2;
  return complete(std::move(choice));
}

TokenizerChoice choose_tokenizer(const TokenizerChoice& asked, const fs::path& directory) {
  check_name(asked.name);
  TokenizerChoice choice = asked;
  if (choice.name.empty() && !choice.merges.empty()) choice.name = gpt2;
  if (choice.name.empty()) choice.name = name_in_run(directory);
  const auto vocabulary = vocabulary_in(directory);
  if (choice.name.empty() && vocabulary) choice.name = gpt2;
  check_file_setting(!choice.name.empty(), directory, {"tokenizer", "merges"},
                     "has no tokenizer; choose bytes, or the merges.txt that goes with the model");
  if (choice.name == gpt2 && choice.merges.empty() && vocabulary) choice.merges = *vocabulary;
  return complete(std::move(choice));
}

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerChoice& choice) {
  if (choice.name == gpt2) return read_gpt2_tokenizer(choice.merges);
  return make_byte_tokenizer();
}

bool same_tokens(const Tokenizer& a, const Tokenizer& b) {
  const auto *left = dynamic_cast<const Gpt2Tokenizer*>(&a),
             *right = dynamic_cast<const Gpt2Tokenizer*>(&b);
  return left && right ? *left == *right : a.name() == b.name();
}

void save_tokenizer(const fs::path& directory, const Tokenizer& tokenizer) {
  if (const auto* t = dynamic_cast<const Gpt2Tokenizer*>(&tokenizer)) {
    write_tokenizer_files(directory, *t);
  }
}

}  // namespace spool
