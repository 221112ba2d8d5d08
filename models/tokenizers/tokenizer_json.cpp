// Reads tokenizer.json: the vocabulary, the merges and the added tokens.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/models/tokenizers/tokenizer_json_steps.h"
#include "spool/models/tokenizers/utf8.h"
#include "spool/runtime/files/file.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t max_tokenizer_json_bytes = 128'000'000;
constexpr int64_t max_tokenizer_json_values = 8'000'000;

class TokenizerJsonReader {
 public:
  explicit TokenizerJsonReader(const JsonField& whole) : whole_(whole) {}

  TokenizerParts read() {
    const JsonField model = whole_.member("model");
    check_model(model);
    read_normalizer(whole_, parts_);
    read_pre_tokenizer(whole_, parts_);
    spelling_ = read_decoder(whole_, parts_);
    read_vocabulary(model);
    read_added_tokens();
    read_merges(model.member("merges"));
    read_post_processor(whole_, parts_);
    return std::move(parts_);
  }

 private:
  static void check_model(const JsonField& model) {
    const auto type = model.present("type");
    if (type && type->string() != "BPE") {
      type->refuse(excerpt(type->value()), " is not supported; BPE is");
    }
    const auto dropout = model.present("dropout");
    if (dropout) dropout->expect(dropout->number() == 0, "dropout is not supported");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const auto field = model.present(key);
      if (field) field->expect(field->string().empty(), "it is not supported");
    }
  }

  // The entry for a token's text; ids must not be far above the number of tokens.
  std::string& text_at(const JsonField& id) {
    const auto number = static_cast<size_t>(id.integer<int32_t>(0, max_id_));
    if (number >= parts_.texts.size()) parts_.texts.resize(number + 1);
    return parts_.texts[number];
  }

  void read_vocabulary(const JsonField& model) {
    const std::vector<JsonField> tokens = model.member("vocab").members();
    const auto added = whole_.present("added_tokens");
    max_id_ = static_cast<int32_t>(2 * tokens.size() + (added ? added->items().size() : 0) + 1000);
    ids_.reserve(tokens.size());
    const bool byte_fallback = model.flag("byte_fallback", /*absent=*/false);
    for (const JsonField& field : tokens) {
      const std::string& key = field.key();
      field.expect(!key.empty(), "a token without a character is not supported");
      std::string& text = text_at(field);
      const auto id = field.integer<int32_t>(0, max_id_);
      field.expect(text.empty(), "id ", id, " is also the id of another token");
      text = decoded(key, id);
      ids_.emplace(key, id);
      add_token(key, text, id);
      if (const int byte = byte_fallback ? byte_spelt(key) : -1; byte >= 0) {
        parts_.encoding.bytes[static_cast<size_t>(byte)] = id;
      }
    }
    read_unknown(model);
    parts_.encoding.takes_whole_tokens = model.flag("ignore_merges", /*absent=*/false);
  }

  // The text of a token; stores its text at the begin of a text if that differs.
  std::string decoded(const std::string& key, int32_t id) {
    std::string text = spelling_.decode(key), begun = spelling_.decode_at_begin(key);
    if (begun != text) parts_.texts_at_begin[id] = std::move(begun);
    return text;
  }

  void add_token(const std::string& key, const std::string& text, int32_t id) {
    const std::string& spelt = parts_.encoding.bytewise ? text : key;
    if (parts_.encoding.bytewise) {
      if (text.size() == 1) parts_.encoding.bytes[static_cast<unsigned char>(text[0])] = id;
    } else if (first_character_size(key) == key.size()) {
      parts_.encoding.characters.insert({0, static_cast<int32_t>(code_point(key))}, id);
    }
    parts_.encoding.tokens.emplace_back(spelt, id);
  }

  void read_unknown(const JsonField& model) {
    parts_.encoding.fuse_unknown = model.flag("fuse_unk", /*absent=*/false);
    const auto unknown = model.present("unk_token");
    if (!unknown) return;
    const auto found = ids_.find(unknown->string());
    unknown->expect(found != ids_.end(), excerpt(unknown->value()), " is not in the vocabulary");
    parts_.encoding.unknown = found->second;
  }

  void read_added_tokens() {
    const auto list = whole_.present("added_tokens");
    if (!list) return;
    for (const JsonField& token : list->items()) add_added_token(token);
  }

  void add_added_token(const JsonField& token) {
    const JsonField content = token.member("content"), number = token.member("id");
    const std::string text = content.string();
    content.expect(!text.empty() && text.size() <= AddedTokens::max_bytes,
                   "an added token has 1 to ", AddedTokens::max_bytes, " bytes, not ", text.size());
    std::string& place = text_at(number);
    const auto id = number.integer<int32_t>(0, max_id_);
    const auto known = ids_.find(text);
    number.expect(known != ids_.end() ? known->second == id : place.empty(), "id ", id,
                  " is also the id of another token, or ", excerpt(text), " has another one");
    place = parts_.encoding.bytewise ? text : decoded(text, id);
    ids_.emplace(text, id);
    content.expect(parts_.added_ids.emplace(text, id).second, excerpt(text), " is there twice");
    const bool special = token.flag("special", /*absent=*/false);
    if (special) parts_.special.push_back(id);
    AddedToken added{.text = text,
                     .id = id,
                     .single_word = token.flag("single_word", /*absent=*/false),
                     .takes_left = token.flag("lstrip", /*absent=*/false),
                     .takes_right = token.flag("rstrip", /*absent=*/false)};
    if (token.flag("normalized", /*absent=*/!special)) {
      std::string buffer;
      added.text = parts_.normalizer.normalize(text, /*continues=*/false, buffer);
      content.expect(!added.text.empty() && added.text.size() <= AddedTokens::max_bytes,
                     "the normalizer leaves nothing of it, or too much");
      parts_.added_after_normalizer.add(std::move(added));
    } else {
      parts_.added.add(std::move(added));
    }
  }

  int32_t id_of(const JsonField& merge, const std::string& token) const {
    const auto found = ids_.find(token);
    merge.expect(found != ids_.end(), excerpt(token), " is not in the vocabulary");
    return found->second;
  }

  static std::pair<std::string, std::string> pair_of(const JsonField& merge) {
    if (merge.is_list()) {
      const std::vector<JsonField> pair = merge.items();
      merge.expect(pair.size() == 2, "a merge is of two tokens, not of ", pair.size());
      return {pair[0].string(), pair[1].string()};
    }
    const std::string text = merge.string();
    const size_t blank = text.find(' ');
    merge.expect(blank != text.npos && text.find(' ', blank + 1) == text.npos, excerpt(text),
                 " is not two tokens with a blank between them");
    return {text.substr(0, blank), text.substr(blank + 1)};
  }

  void read_merges(const JsonField& merges) {
    for (const JsonField& merge : merges.items()) {
      const auto [left, right] = pair_of(merge);
      const TokenPair pair{id_of(merge, left), id_of(merge, right)};
      merge.expect(parts_.encoding.merges.add(pair, id_of(merge, left + right)),
                   "the same two tokens are merged before");
    }
  }

  const JsonField& whole_;
  TokenizerParts parts_;
  TokenSpelling spelling_;
  std::unordered_map<std::string, int32_t> ids_;  // by spelling
  int32_t max_id_ = 0;
};

// The text of a special token in tokenizer_config.json, which has it as a string or an object.
std::string configured_token(const TokenizerParts& parts, const fs::path& directory,
                             const char* key) {
  const auto config = parts.files.find("tokenizer_config.json");
  if (config == parts.files.end()) return {};
  const JsonField whole = parse_json(config->second, (directory / config->first).string());
  const auto field = whole.present(key);
  if (!field) return {};
  return field->is_string() ? field->string() : field->member("content").string();
}

// The token between documents has a name of its own.  The one that ends a turn of a chat is
// another, even if tokenizer_config.json has that as its eos_token.
std::optional<int32_t> end_of_text_of(const TokenizerParts& parts, const fs::path& directory) {
  for (const std::string& name :
       {std::string("<|endoftext|>"), std::string("<|end_of_text|>"), std::string("</s>"),
        configured_token(parts, directory, "eos_token")}) {
    const auto found = parts.added_ids.find(name);
    if (found != parts.added_ids.end()) return found->second;
  }
  return {};
}

// Reads the folder's other files of the tokenizer.  Without a tokenizer_config.json, writes one:
// transformers would otherwise use the tokenizer class and the ids of the model's kind.
void read_files_beside(const fs::path& directory, TokenizerParts& parts) {
  constexpr const char* beside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                    "added_tokens.json", "chat_template.jinja"};
  for (const char* name : beside) {
    const fs::path file = directory / name;
    if (path_exists(file)) parts.files[name] = read_text_file(file, max_tokenizer_json_bytes);
  }
  parts.end_of_text = end_of_text_of(parts, directory);
  std::string& config = parts.files["tokenizer_config.json"];
  if (!config.empty()) return;
  nlohmann::ordered_json made{{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"clean_up_tokenization_spaces", false}};
  const auto name_token = [&](const char* key, int32_t id) {
    const auto has_id = [&](const auto& token) { return token.second == id; };
    const auto found = std::ranges::find_if(parts.added_ids, has_id);
    if (found != parts.added_ids.end()) made[key] = found->first;
  };
  if (parts.begin_of_text.size() == 1) name_token("bos_token", parts.begin_of_text[0]);
  if (parts.end_of_text) name_token("eos_token", *parts.end_of_text);
  config = made.dump(2) + "\n";
}

}  // namespace

std::unique_ptr<JsonTokenizer> parse_tokenizer_json(std::string text, const fs::path& path) {
  const JsonField whole =
      parse_json(text, path.string(), max_json_depth, max_tokenizer_json_values);
  TokenizerParts parts = TokenizerJsonReader(whole).read();
  parts.files[std::string(JsonTokenizer::kind)] = std::move(text);
  read_files_beside(path.parent_path(), parts);
  return std::make_unique<JsonTokenizer>(std::move(parts));
}

std::unique_ptr<JsonTokenizer> read_tokenizer_json(const fs::path& path) {
  return parse_tokenizer_json(read_text_file(path, max_tokenizer_json_bytes), path);
}

}  // namespace spool
