// Internal: not one of the public headers (docs/public-headers.md).
#pragma once

// Conversations with a model, as text that it was trained on.  A format is what a model's template
// of chats would render without messages of its own; templates are not run.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spool/models/tokenizers/tokenizer.h"
#include "spool/runtime/names.h"

namespace spool {

enum class ChatFormat : uint8_t {
  chatml,  // <|im_start|>user\n...<|im_end|>\n: Qwen, SmolLM2
  llama3,  // <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
  zephyr   // <|user|>\n...</s>\n: TinyLlama
};
template <>
inline constexpr std::array enumerator_names<ChatFormat>{"chatml", "llama3", "zephyr"};

// The template of chats that a model's folder has: chat_template.jinja, or the field chat_template
// of tokenizer_config.json.
std::optional<std::string> chat_template_in(const std::filesystem::path& directory);
// The format whose tokens a template contains.
std::optional<ChatFormat> chat_format_of(std::string_view chat_template);
// Whether a template adds a message of its own that says who the assistant is.
bool has_system_message(std::string_view chat_template);

// Turns messages into tokens.
class Chat {
 public:
  // Throws if the tokenizer lacks a token of the format.
  Chat(ChatFormat, const Tokenizer&);

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
  int32_t end_;
};

}  // namespace spool
