#include "spool/models/tokenizers/tokenizer_choice.h"

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/runtime/check.h"
#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr const char* bytewise = "bytes";
constexpr const char* gpt2 = "gpt2";
const std::string of_json(JsonTokenizer::kind);

// The choice with a path in the place of a name made a path.
TokenizerChoice with_path(TokenizerChoice choice) {
  const std::string& name = choice.name;
  if (name.empty() || name == bytewise || name == gpt2 || !choice.json.empty()) return choice;
  const fs::path path = name, file = path_is_directory(path) ? path / of_json : path;
  check_setting(path_exists(file), {"tokenizer"}, "there is no tokenizer \"", name,
                "\"; choose bytes or gpt2, or a tokenizer.json, or a folder with one");
  return {.name = of_json, .merges = choice.merges, .json = file};
}

// The tokenizer that a checkpoint's run.json names; empty if there is no run.json.
std::string name_in_run(const fs::path& directory) {
  const fs::path file = directory / "run.json";
  if (!path_exists(file)) return {};
  const JsonField field = read_json(file).member("tokenizer");
  const std::string name = field.string();
  field.expect(name == bytewise || name == gpt2 || name == of_json, excerpt(name),
               " is none of \"bytes\", \"gpt2\" and \"tokenizer.json\"");
  return name;
}

TokenizerChoice complete(TokenizerChoice choice) {
  check_setting(choice.name == gpt2 || choice.merges.empty(), {"merges", "tokenizer"},
                choice.merges.string(), " is GPT-2's vocabulary, and the tokenizer is ",
                choice.name, "; leave one of them out");
  check_setting(choice.name != gpt2 || !choice.merges.empty(), {"merges"},
                "the gpt2 tokenizer needs its vocabulary: the merges.txt that comes with every "
                "GPT-2, or llm.c's gpt2_tokenizer.bin");
  check_setting(choice.name != of_json || !choice.json.empty(), {"tokenizer"},
                "the tokenizer.json that goes with the model is not beside it; say where it is");
  return choice;
}

// Whether the config.json beside a vocabulary, if there is one, is of a GPT-2.
bool is_gpt2_folder(const fs::path& directory) {
  const fs::path file = directory / "config.json";
  if (!path_exists(file)) return true;
  const auto type = read_json(file).find("model_type");
  return !type || (type->is_string() && type->string() == gpt2);
}

}  // namespace

std::optional<TokenizerChoice> tokenizer_in(const fs::path& directory) {
  const auto vocabulary = vocabulary_in(directory);
  const bool has_json = path_exists(directory / of_json);
  if (vocabulary && (!has_json || is_gpt2_folder(directory))) {
    return TokenizerChoice{.name = gpt2, .merges = *vocabulary};
  }
  if (!has_json) return {};
  return TokenizerChoice{.name = of_json, .merges = {}, .json = directory / of_json};
}

std::optional<fs::path> vocabulary_in(const fs::path& directory) {
  for (const char* name : {"merges.txt", "gpt2_tokenizer.bin"}) {
    if (path_exists(directory / name)) return directory / name;
  }
  return {};
}

TokenizerChoice choose_tokenizer(const TokenizerChoice& asked) {
  TokenizerChoice choice = with_path(asked);
  if (choice.name.empty()) choice.name = choice.merges.empty() ? bytewise : gpt2;
  return complete(std::move(choice));
}

TokenizerChoice choose_tokenizer(const TokenizerChoice& asked, const fs::path& directory) {
  TokenizerChoice choice = asked;
  if (choice.name.empty() && !choice.merges.empty()) choice.name = gpt2;
  if (choice.name.empty()) choice.name = name_in_run(directory);
  const auto own = tokenizer_in(directory);
  if (choice.name.empty() && own) choice.name = own->name;
  check_file_setting(!choice.name.empty(), directory, {"tokenizer", "merges"},
                     "has no tokenizer; choose bytes, or the merges.txt that goes with the model");
  const auto vocabulary = vocabulary_in(directory);
  if (choice.name == gpt2 && choice.merges.empty() && vocabulary) choice.merges = *vocabulary;
  const fs::path json = directory / of_json;
  if (choice.name == of_json && choice.json.empty() && path_exists(json)) choice.json = json;
  return complete(with_path(std::move(choice)));
}

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerChoice& choice) {
  if (choice.name == gpt2) return read_gpt2_tokenizer(choice.merges);
  if (choice.name == of_json) return read_tokenizer_json(choice.json);
  return make_byte_tokenizer();
}

bool same_tokens(const Tokenizer& a, const Tokenizer& b) {
  const auto *left = dynamic_cast<const Gpt2Tokenizer*>(&a),
             *right = dynamic_cast<const Gpt2Tokenizer*>(&b);
  if (left && right) return *left == *right;
  const auto *first = dynamic_cast<const JsonTokenizer*>(&a),
             *second = dynamic_cast<const JsonTokenizer*>(&b);
  return first && second ? *first == *second : a.name() == b.name();
}

void save_tokenizer(const fs::path& directory, const Tokenizer& tokenizer) {
  if (const auto* t = dynamic_cast<const Gpt2Tokenizer*>(&tokenizer)) {
    write_tokenizer_files(directory, *t);
  } else if (const auto* json = dynamic_cast<const JsonTokenizer*>(&tokenizer)) {
    json->write_files(directory);
  }
}

}  // namespace spool
