// A template may be in tokenizer_config.json, which is JSON.

#include "spool/models/inference/chat.h"

#include <nlohmann/json.hpp>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// A message is before, role, after_role, content, end and after_end.
struct ChatWords {
  std::string_view begin;  // of a conversation
  std::string_view before, after_role, end, after_end;
  bool trims;  // white space around a content is left out
};

constexpr ChatWords words_of(ChatFormat format) {
  switch (format) {
    case ChatFormat::chatml:
      return {"", "<|im_start|>", "\n", "<|im_end|>", "\n", false};
    case ChatFormat::llama3:
      return {"<|begin_of_text|>",
              "<|start_header_id|>",
              "<|end_header_id|>\n\n",
              "<|eot_id|>",
              "",
              true};
    case ChatFormat::zephyr:
      return {"", "<|", "|>\n", "</s>", "\n", false};
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// The field is a template, or a list of some with names, of which one is the default.
std::optional<std::string> template_of(const JsonField& config) {
  const auto field = config.find("chat_template");
  if (!field) return {};
  if (!field->is_list()) return field->string();
  for (const JsonField& item : field->items()) {
    if (item.member("name").string() == "default") return item.member("template").string();
  }
  return {};
}

}  // namespace

std::optional<std::string> chat_template_in(const fs::path& directory) {
  constexpr uint64_t max_bytes = uint64_t{1} << 24;
  const fs::path jinja = directory / "chat_template.jinja";
  if (path_exists(jinja)) return read_text_file(jinja, max_bytes);
  const fs::path config = directory / "tokenizer_config.json";
  if (!path_exists(config)) return {};
  return template_of(parse_json(read_text_file(config, max_bytes), config.string()));
}

std::optional<ChatFormat> chat_format_of(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != text.npos; };
  if (has("<|im_start|>")) return ChatFormat::chatml;
  if (has("<|start_header_id|>")) return ChatFormat::llama3;
  if (has("<|user|>") && has("<|assistant|>")) return ChatFormat::zephyr;
  return {};
}

bool has_system_message(std::string_view chat_template) {
  for (const std::string_view text : {"You are", "Cutting Knowledge Date"}) {
    if (chat_template.find(text) != text.npos) return true;
  }
  return false;
}

Chat::Chat(ChatFormat format, const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), format_(format), end_(0) {
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
  std::string text(words_of(format_).begin);
  if (!system.empty()) text += message("system", system);
  text += message("user", user) + header("assistant");
  std::vector<int32_t> tokens;
  tokenizer_.encode(text, tokens);
  return tokens;
}

std::vector<int32_t> Chat::go_on(int32_t last, const std::string& user) const {
  std::vector<int32_t> tokens;
  if (last != end_) tokens.push_back(end_);
  const std::string_view after = words_of(format_).after_end;
  tokenizer_.encode(sentence(after, message("user", user), header("assistant")), tokens);
  return tokens;
}

}  // namespace spool
