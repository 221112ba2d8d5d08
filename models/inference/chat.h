#pragma once

// Conversations with a model, as text that it was trained on.  A format is what a model's template
// of chats would render without messages of its own (chat_templates.h).

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
  bool begins = false;  // with the token that begins texts
};

// A format's name, which may be followed by +bos: the token that begins texts comes first, as it
// does in llama3 in any case.
std::optional<ChatChoice> parse_chat_format(std::string_view);

// Turns messages into tokens.
class Chat {
 public:
  // Throws if the tokenizer lacks a token of the format.  The tokens come before the conversation.
  Chat(ChatFormat, const Tokenizer&, std::vector<int32_t> first = {});

  // A conversation up to the place where the assistant begins to write: what it is told first, if
  // that is not empty, and what the user says.
  std::vector<int32_t> begin(const std::string& system, const std::string& user) const;
  // The same after what the assistant wrote, whose last token is given.
  std::vector<int32_t> go_on(int32_t last, const std::string& user) const;
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

// With the token that begins texts, where one comes first, as the tokenizer's files in a model's
// folder name it.  Throws if they name none.
Chat open_chat(const ChatChoice&, const Tokenizer&, const std::filesystem::path& directory);

// The chat of a model whose template is a known one and whose tokenizer has the tokens of the
// format.
std::optional<Chat> find_chat(const Tokenizer&, const std::filesystem::path& directory);

}  // namespace spool
