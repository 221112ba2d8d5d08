// Reads the beginning-of-text token from tokenizer_config.json.

#include "spool/models/data/chat.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// A message is written as: before, role, after_role, content, end, after_end.
struct ChatWords {
  std::string_view before, after_role, end, after_end;
  bool trims;  // strips white space around a message's content
};

constexpr ChatWords words_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::chatml:
      return {"<|im_start|>", "\n", "<|im_end|>", "\n", false};
    case ChatFormat::llama3:
      return {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "", true};
    case ChatFormat::zephyr:
      return {"<|", "|>\n", "</s>", "\n", false};
    case ChatFormat::phi3:
      return {"<|", "|>\n", "<|end|>", "\n", false};
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// The name of the beginning-of-text token, if the folder says that there is one.
std::optional<std::string> begin_name(const fs::path& directory) {
  constexpr uint64_t max_bytes = uint64_t{1} << 24;
  const fs::path file = directory / "tokenizer_config.json";
  if (!path_exists(file)) return {};
  const auto field =
      parse_json(read_text_file(file, max_bytes), file.string()).present("bos_token");
  if (!field) return {};
  return field->is_string() ? field->string() : field->member("content").string();
}

std::vector<int32_t> begin_tokens(const Tokenizer& tokenizer, const fs::path& directory) {
  if (const auto name = begin_name(directory)) {
    if (const auto id = tokenizer.token_id(*name)) return {*id};
  }
  return tokenizer.begin_of_text();
}

size_t bytes_of(const Tokenizer& tokenizer, const int32_t& token) {
  return tokenizer.decode_rest({&token, 1}).size();
}

}  // namespace

void append(const Tokenizer& tokenizer, const std::string& text, std::optional<size_t> begin,
            Example& to) {
  const size_t first = to.tokens.size();
  tokenizer.encode(text, to.tokens);
  to.learnt.resize(to.tokens.size(), 0);
  if (!begin) return;
  std::vector<int32_t> before;
  tokenizer.encode(std::string_view(text).substr(0, *begin), before);
  size_t not_learnt = 0, bytes = 0;
  for (const int32_t& token : before) not_learnt += bytes_of(tokenizer, token);
  for (size_t i = first; i < to.tokens.size(); ++i) {
    bytes += bytes_of(tokenizer, to.tokens[i]);
    to.learnt[i] = bytes > not_learnt;
  }
}

std::optional<ChatChoice> parse_chat_format(std::string_view text) {
  constexpr std::string_view with_begin = "+bos";
  const bool begins = text.ends_with(with_begin);
  if (begins) text.remove_suffix(with_begin.size());
  const auto format = parse<ChatFormat>(text);
  if (!format) return {};
  return ChatChoice{.format = *format, .begins = begins || *format == ChatFormat::llama3};
}

Chat::Chat(ChatFormat format, const Tokenizer& tokenizer, std::vector<int32_t> first)
    : tokenizer_(tokenizer), format_(format), first_(std::move(first)), end_(0) {
  const ChatWords words = words_of(format);
  const auto id = tokenizer.token_id(words.end);
  check_setting(id.has_value(), {"chat-format"}, "the tokenizer has no token ", words.end,
                ", which ends a message of a chat in the format ", name(format));
  end_ = *id;
}

std::string Chat::header(std::string_view role) const {
  const ChatWords words = words_of(format_);
  return sentence(words.before, role, words.after_role);
}

std::string Chat::message(std::string_view role, std::string_view content) const {
  const ChatWords words = words_of(format_);
  return sentence(header(role), words.trims ? trimmed(content) : content, words.end,
                  words.after_end);
}

std::vector<int32_t> Chat::begin(const std::string& system, const std::string& user) const {
  std::string text;
  if (!system.empty()) text += message("system", system);
  text += message("user", user) + header("assistant");
  std::vector<int32_t> tokens = first_;
  tokenizer_.encode(text, tokens);
  return tokens;
}

std::vector<int32_t> Chat::next_turn(int32_t last, const std::string& user) const {
  std::vector<int32_t> tokens;
  if (last != end_) tokens.push_back(end_);
  const std::string_view after = words_of(format_).after_end;
  tokenizer_.encode(sentence(after, message("user", user), header("assistant")), tokens);
  return tokens;
}

std::string Chat::last_message(const std::string& text) const {
  const std::string before = header("user");
  const size_t at = text.rfind(before);
  if (at == text.npos) return text;
  const size_t begin = at + before.size(), end = text.find(words_of(format_).end, begin);
  return text.substr(begin, end - begin);
}

// Each message is encoded from after the token that ends the one before: an added token cuts any
// text, so the tokens are those of the whole.
Example Chat::encode(std::span<const ChatMessage> messages) const {
  constexpr std::array roles{"system", "user", "assistant"};
  const ChatWords words = words_of(format_);
  Example example{.tokens = first_};
  std::string before;
  for (const ChatMessage& m : messages) {
    check(std::ranges::find(roles, m.role) != roles.end(), "a message is of the role '", m.role,
          "', and a chat has system, user and assistant");
    const std::string start = before + header(m.role);
    const std::string_view content = words.trims ? trimmed(m.content) : m.content;
    const bool is_learnt = m.role == roles.back();
    append(tokenizer_, sentence(start, content, words.end),
           is_learnt ? std::optional(start.size()) : std::nullopt, example);
    before = words.after_end;
  }
  append(tokenizer_, before, {}, example);
  return example;
}

namespace {

// A malformed template does not matter if a format is given.
std::optional<std::string> template_in(const fs::path& directory, bool is_needed) {
  try {
    return chat_template_in(directory);
  } catch (const Error& e) {
    if (is_needed || e.kind() != ErrorKind::file) throw;
    return {};
  }
}

}  // namespace

ChosenChat choose_chat(const std::string& asked, const fs::path& directory) {
  const auto text = template_in(directory, asked.empty());
  const KnownTemplate* known = text ? find_known_template(*text) : nullptr;
  std::optional<ChatChoice> choice = parse_chat_format(asked);
  if (!choice && known) choice = {.format = known->format, .begins = known->begins};
  check_file_setting(
      choice.has_value(), directory, {"chat-format"},
      text ? "its template of chats is none of those that Spool knows by their text"
           : "has no template of chats",
      "; if the model was trained on chats in one of these formats, name it, such as chatml, "
      "or chatml+bos if they begin with the token that begins texts: ",
      list_of<ChatFormat>());
  if (known && known->format == choice->format) choice->begins |= known->begins;
  return {.choice = *choice, .has_own_message = known && known->has_own_message};
}

Chat open_chat(const ChatChoice& choice, const Tokenizer& tokenizer, const fs::path& directory) {
  if (!choice.begins) return {choice.format, tokenizer};
  std::vector<int32_t> first = begin_tokens(tokenizer, directory);
  check_file_setting(!first.empty(), directory, {"chat-format"},
                     "its chats begin with the token that begins texts, and its tokenizer's files "
                     "name none; bos_token in tokenizer_config.json would");
  return {choice.format, tokenizer, std::move(first)};
}

std::optional<Chat> find_chat(const Tokenizer& tokenizer, const fs::path& directory) {
  const auto text = chat_template_in(directory);
  const KnownTemplate* known = text ? find_known_template(*text) : nullptr;
  if (!known || !tokenizer.token_id(words_of(known->format).end)) return {};
  return open_chat({.format = known->format, .begins = known->begins}, tokenizer, directory);
}

}  // namespace spool
