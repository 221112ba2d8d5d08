#pragma once

// Writes conversations with a model as the text that it was trained on.  A format (chat_format.h)
// is what the model's chat template renders, without messages that the template adds itself
// (chat_templates.h).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/data/chats/chat_format.h"
#include "spool/models/data/chats/chat_templates.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct ChatMessage {
  std::string role = {}, content = {};  // "system", "user" or "assistant"
};

// Tokens to train on, and which of them a model is to learn to write; that of the first does not
// count.
struct Example {
  std::vector<int32_t> tokens = {};
  std::vector<uint8_t> learnt = {};  // parallel: 0 or 1
};

// Appends a text.  Of its tokens those are learnt that have a byte from `begin` on, a place between
// two characters; none: none.  Bytes are those that tokens decode to, one by one, which add up over
// any cut of a text.
void append(const Tokenizer&, const std::string& text, std::optional<size_t> begin, Example& to);

// Turns messages into tokens.
class Chat {
 public:
  // Throws if the tokenizer lacks a token of the format.  `first` comes before the conversation.
  Chat(ChatFormat, const Tokenizer&, std::vector<int32_t> first = {});

  // A conversation up to where the assistant begins to write: the system's message, if it is not
  // empty, and the user's.  Throws if the format has no place for the system's.
  std::vector<int32_t> begin(const std::string& system, const std::string& user) const;
  // The continuation after what the assistant wrote, whose last token is given.
  std::vector<int32_t> next_turn(int32_t last, const std::string& user) const;
  // What the user says last in a text of this format; the text, if there is nothing.
  std::string last_message(const std::string& text) const;
  // The token that ends what the assistant says.
  int32_t end() const { return end_; }

  // A whole conversation.  Of what the assistant says each token that has a byte of it is learnt,
  // and the token that ends it.  Throws if a role is none of a chat's, or has no place here.
  Example encode(std::span<const ChatMessage>) const;

 private:
  struct Turn {
    const ChatFormat::Message& form;
    std::string content;
    bool is_learnt = false;
  };
  std::vector<Turn> turns_of(std::span<const ChatMessage>) const;
  Turn turn_of(const ChatMessage&) const;
  std::string prompt(std::span<const ChatMessage>) const;
  void append_after(const std::string& token, const std::string& text, std::optional<size_t> begin,
                    Example& to) const;

  const Tokenizer& tokenizer_;
  ChatFormat format_;
  std::vector<int32_t> first_;
  std::string first_name_ = {};  // of the one token that they are; empty: they are none or several
  int32_t end_;
};

// The format that `asked` names, by a name or a file, or, if it is empty, that of the template in a
// model's folder.
struct ChosenChat {
  ChatFormat choice = {};
  bool has_own_message = false;  // the template adds one that Spool does not add
};
// Throws, of the setting chat-format, if neither is known.
ChosenChat choose_chat(const std::string& asked, const std::filesystem::path& directory);

// Takes the beginning-of-text token, if the format needs it, from the tokenizer's files in a
// model's folder.  Throws if they name none.
Chat open_chat(const ChatFormat&, const Tokenizer&, const std::filesystem::path& directory);

// The chat of a model, if its template is a known one and its tokenizer has the format's tokens.
std::optional<Chat> find_chat(const Tokenizer&, const std::filesystem::path& directory);

}  // namespace spool
