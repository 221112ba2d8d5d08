#pragma once

// Writes conversations with a model as the text that it was trained on.  A format is what the
// model's chat template renders, without messages that the template adds itself (chat_templates.h).

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/inference/chat_templates.h"
#include "spool/models/tokenizers/tokenizer.h"

namespace spool {

struct ChatChoice {
  ChatFormat format = ChatFormat::chatml;
  bool begins = false;  // with the beginning-of-text token
};

// Parses a format's name, which may be followed by "+bos": the beginning-of-text token comes first,
// as it always does in llama3.
std::optional<ChatChoice> parse_chat_format(std::string_view);

// Turns messages into tokens.
class Chat {
 public:
  // Throws if the tokenizer lacks a token of the format.  `first` comes before the conversation.
  Chat(ChatFormat, const Tokenizer&, std::vector<int32_t> first = {});

  // A conversation up to where the assistant begins to write: the system's message, if it is not
  // empty, and the user's.
  std::vector<int32_t> begin(const std::string& system, const std::string& user) const;
  // The continuation after what the assistant wrote, whose last token is given.
  std::vector<int32_t> next_turn(int32_t last, const std::string& user) const;
  // The token that ends a message.
  int32_t end() const { return end_; }

 private:
  std::string message(std::string_view role, std::string_view content) const;
  std::string header(std::string_view role) const;

  const Tokenizer& tokenizer_;
  ChatFormat format_;
  std::vector<int32_t> first_;
  int32_t end_;
};

// Takes the beginning-of-text token, if the format needs it, from the tokenizer's files in a
// model's folder.  Throws if they name none.
Chat open_chat(const ChatChoice&, const Tokenizer&, const std::filesystem::path& directory);

// The chat of a model, if its template is a known one and its tokenizer has the format's tokens.
std::optional<Chat> find_chat(const Tokenizer&, const std::filesystem::path& directory);

}  // namespace spool
