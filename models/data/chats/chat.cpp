// Reads the beginning-of-text token from tokenizer_config.json.

#include "spool/models/data/chats/chat.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// White space at the beginning of a text, as Python's str.strip() has it; 0: none.
size_t leading_blank(std::string_view text) {
  constexpr std::string_view one_byte = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  if (text.empty() || one_byte.find(text.front()) != one_byte.npos) return text.empty() ? 0 : 1;
  constexpr std::string_view others[] = {"\u0085", "\u00a0", "\u1680", "\u2000", "\u2001",
                                         "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
                                         "\u2007", "\u2008", "\u2009", "\u200a", "\u2028",
                                         "\u2029", "\u202f", "\u205f", "\u3000"};
  for (const std::string_view blank : others) {
    if (text.starts_with(blank)) return blank.size();
  }
  return 0;
}

// Without white space around it.
std::string_view trimmed(std::string_view text) {
  while (const size_t blank = leading_blank(text)) text.remove_prefix(blank);
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t blank = leading_blank(text.substr(at));
    at += std::max<size_t>(blank, 1);
    if (blank == 0) end = at;
  }
  return text.substr(0, end);
}

// A token that ends a message of the format and that the tokenizer lacks.
std::optional<std::string> lacking_end(const ChatFormat& format, const Tokenizer& tokenizer) {
  for (const ChatFormat::Message* m : {&format.assistant, &format.user}) {
    if (!m->end.empty() && !tokenizer.token_id(m->end)) return m->end;
  }
  const bool has_end = format.system && !format.system->end.empty();
  if (has_end && !tokenizer.token_id(format.system->end)) return format.system->end;
  return {};
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

Chat::Chat(ChatFormat format, const Tokenizer& tokenizer, std::vector<int32_t> first)
    : tokenizer_(tokenizer), format_(std::move(format)), first_(std::move(first)), end_(0) {
  const auto lacking = lacking_end(format_, tokenizer);
  check_setting(!lacking, {"chat-format"}, "the tokenizer has no token ", lacking.value_or(""),
                ", which ends a message of a chat in the format ", format_.name);
  end_ = *tokenizer.token_id(format_.assistant.end);
  const std::string name = tokenizer.decode(first_);
  if (first_.size() == 1 && tokenizer.token_id(name) == first_.front()) first_name_ = name;
}

// Appends a text that follows an added token, which may take white space after it.  Where both
// begin with a longer token, the text is encoded alone.
void Chat::append_after(const std::string& token, const std::string& text,
                        std::optional<size_t> begin, Example& to) const {
  Example both;
  append(tokenizer_, token + text, begin ? std::optional(token.size() + *begin) : begin, both);
  if (token.empty() || both.tokens.front() != tokenizer_.token_id(token)) {
    return append(tokenizer_, text, begin, to);
  }
  to.tokens.insert(to.tokens.end(), both.tokens.begin() + 1, both.tokens.end());
  to.learnt.resize(to.tokens.size() - both.tokens.size() + 1, 0);
  to.learnt.insert(to.learnt.end(), both.learnt.begin() + 1, both.learnt.end());
}

Chat::Turn Chat::turn_of(const ChatMessage& m) const {
  constexpr std::array roles{"system", "user", "assistant"};
  check(std::ranges::find(roles, m.role) != roles.end(), "a message is of the role '", m.role,
        "', and a chat has system, user and assistant");
  const bool is_assistant = m.role == "assistant";
  const ChatFormat::Message& form = is_assistant       ? format_.assistant
                                    : m.role == "user" ? format_.user
                                                       : *format_.system;
  const std::string_view content = form.trims ? trimmed(m.content) : m.content;
  return {.form = form,
          .content = sentence(is_assistant ? format_.lead : "", content),
          .is_learnt = is_assistant};
}

std::vector<Chat::Turn> Chat::turns_of(std::span<const ChatMessage> messages) const {
  std::vector<Turn> turns;
  std::string joined;  // stands before what the user says first
  for (const ChatMessage& m : messages) {
    if (m.role != "system" || format_.system) {
      turns.push_back(turn_of(m));
      turns.back().content.insert(0, joined);
      joined.clear();
      continue;
    }
    check(format_.joint.has_value(), "a chat in the format ", format_.name,
          " has no message of the system; the user's may say the same");
    const bool is_first = &m == &messages.front();
    check(is_first && messages.size() > 1 && (&m)[1].role == "user", "in a chat in the format ",
          format_.name, " a message of the system comes first, and one of the user follows");
    joined = m.content + *format_.joint;
  }
  return turns;
}

// The text up to where the assistant begins to write.
std::string Chat::prompt(std::span<const ChatMessage> messages) const {
  std::string text;
  for (const auto& [form, content, _] : turns_of(messages)) {
    text += sentence(form.before, content, form.end, form.after);
  }
  return text + format_.assistant.before;
}

std::vector<int32_t> Chat::begin(const std::string& system, const std::string& user) const {
  std::vector<ChatMessage> messages{{"user", user}};
  if (!system.empty()) messages.insert(messages.begin(), {"system", system});
  Example begun{.tokens = first_};
  append_after(first_name_, format_.begin + prompt(messages), {}, begun);
  return begun.tokens;
}

std::vector<int32_t> Chat::next_turn(int32_t last, const std::string& user) const {
  Example added;
  if (last != end_) added.tokens.push_back(end_);
  const ChatMessage message{"user", user};
  append_after(format_.assistant.end, format_.assistant.after + prompt({&message, 1}), {}, added);
  return added.tokens;
}

std::string Chat::last_message(const std::string& text) const {
  const auto& [before, end_token, after, _] = format_.user;
  const size_t at = text.rfind(before);
  if (before.empty() || at == text.npos) return text;
  const size_t begin = at + before.size();
  const std::string& end = end_token.empty() ? after : end_token;
  return text.substr(begin, end.empty() ? text.npos : text.find(end, begin) - begin);
}

// The text is encoded in pieces, each from after a token that ends a message to the next: an added
// token cuts any text, so the tokens are those of the whole.
Example Chat::encode(std::span<const ChatMessage> messages) const {
  Example example{.tokens = first_};
  std::string before = first_name_, piece = format_.begin;
  for (const auto& [form, content, is_learnt] : turns_of(messages)) {
    piece += form.before;
    const size_t begin = piece.size();
    piece += content + form.end;
    if (!form.end.empty()) {
      append_after(before, piece, is_learnt ? std::optional(begin) : std::nullopt, example);
      before = form.end;
      piece.clear();
    }
    piece += form.after;
  }
  append_after(before, piece, {}, example);
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
  std::optional<ChatFormat> format;
  if (!asked.empty()) format = named_chat_format(asked);
  if (!format && known) format = format_of(*known);
  check_file_setting(
      format.has_value(), directory, {"chat-format"},
      text ? "its template of chats is none of those that Spool knows by their text"
           : "has no template of chats",
      "; if the model was trained on chats in one of these formats, name it, such as chatml, "
      "or chatml+bos if they begin with the token that begins texts: ",
      chat_format_names(), "; or give a file that describes another");
  if (known && known->format == format->name) format->begins_with_token |= known->begins;
  return {.choice = *format, .has_own_message = known && known->has_own_message};
}

Chat open_chat(const ChatFormat& format, const Tokenizer& tokenizer, const fs::path& directory) {
  if (!format.begins_with_token) return {format, tokenizer};
  std::vector<int32_t> first = begin_tokens(tokenizer, directory);
  check_file_setting(!first.empty(), directory, {"chat-format"},
                     "its chats begin with the token that begins texts, and its tokenizer's files "
                     "name none; bos_token in tokenizer_config.json would");
  return {format, tokenizer, std::move(first)};
}

std::optional<Chat> find_chat(const Tokenizer& tokenizer, const fs::path& directory) {
  const auto text = chat_template_in(directory);
  const KnownTemplate* known = text ? find_known_template(*text) : nullptr;
  if (!known || lacking_end(format_of(*known), tokenizer)) return {};
  return open_chat(format_of(*known), tokenizer, directory);
}

}  // namespace spool
