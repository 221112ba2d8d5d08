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

// The choice in which a path given as a name is moved to `json`.
TokenizerChoice with_path(TokenizerChoice choice) {
  const std::string& name = choice.name;
  if (name.empty() || name == bytewise || name == gpt2 || !choice.json.empty()) return choice;
  const fs::path path = name;
  const bool is_folder = path_is_directory(path);
  const auto own = is_folder ? tokenizer_in(path) : std::nullopt;
  check_setting(own || (path_exists(path) && !is_folder), {"tokenizer"}, "there is no tokenizer \"",
                name, "\"; choose bytes or gpt2, or a tokenizer.json, or a folder with one");
  const bool has_merges = !choice.merges.empty();
  if (own && own->name == gpt2) return has_merges ? choice : *own;
  return {.name = of_json, .merges = choice.merges, .json = own ? own->json : path};
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

// With added tokens, merges.txt and vocab.json become a tokenizer.json.
std::optional<fs::path> added_tokens_beside(const fs::path& merges) {
  const fs::path directory = merges.parent_path(), added = directory / "added_tokens.json";
  const bool is_whole = merges.filename() == "merges.txt" && path_exists(added) &&
                        path_exists(directory / "vocab.json");
  return is_whole ? std::optional(added) : std::nullopt;
}

TokenizerChoice with_added_tokens(TokenizerChoice choice) {
  const auto added = choice.merges.empty() ? std::nullopt : added_tokens_beside(choice.merges);
  if (!added || !choice.json.empty()) return choice;
  return {.name = of_json, .merges = {}, .json = *added};
}

}  // namespace

std::optional<TokenizerChoice> tokenizer_in(const fs::path& directory) {
  const auto vocabulary = vocabulary_in(directory);
  const bool is_of_run = name_in_run(directory) == gpt2;
  if (path_exists(directory / of_json) && !(vocabulary && is_of_run)) {
    return TokenizerChoice{.name = of_json, .merges = {}, .json = directory / of_json};
  }
  if (!vocabulary) return {};
  const TokenizerChoice choice{.name = gpt2, .merges = *vocabulary};
  return is_of_run ? choice : with_added_tokens(choice);
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
  choice = complete(std::move(choice));
  return choice.name == gpt2 ? with_added_tokens(std::move(choice)) : choice;
}

// A run that began with merges alone continues with them.
TokenizerChoice choose_tokenizer(const TokenizerChoice& asked, const fs::path& directory) {
  TokenizerChoice choice = asked;
  const std::string of_run = name_in_run(directory);
  const bool names_gpt2 = choice.name.empty() || choice.name == gpt2;
  if ((of_run.empty() && names_gpt2) || choice.name == of_json) {
    choice = with_added_tokens(std::move(choice));
  }
  if (choice.name.empty() && !choice.merges.empty()) choice.name = gpt2;
  if (choice.name.empty()) choice.name = of_run;
  const auto own = tokenizer_in(directory);
  if (choice.name.empty() && own) choice.name = own->name;
  check_file_setting(!choice.name.empty(), directory, {"tokenizer", "merges"},
                     "has no tokenizer; choose bytes, or the merges.txt that goes with the model");
  const auto vocabulary = vocabulary_in(directory);
  if (choice.name == gpt2 && choice.merges.empty() && vocabulary) choice.merges = *vocabulary;
  if (choice.name == of_json && choice.json.empty() && own) choice.json = own->json;
  return complete(with_path(std::move(choice)));
}

std::unique_ptr<Tokenizer> open_tokenizer(const TokenizerChoice& choice) {
  if (choice.name == gpt2) return read_gpt2_tokenizer(choice.merges);
  if (choice.name != of_json) return make_byte_tokenizer();
  const bool is_added = choice.json.filename() == "added_tokens.json";
  return is_added ? read_added_tokens(choice.json) : read_tokenizer_json(choice.json);
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
