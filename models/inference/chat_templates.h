#pragma once

// Templates of chats, which are programs in jinja.  Spool does not run them: it knows some by their
// SHA-256, and what they render.  No other is taken for one of these, however alike.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spool/runtime/names.h"

namespace spool {

enum class ChatFormat : uint8_t {
  chatml,  // <|im_start|>user\n...<|im_end|>\n: Qwen, SmolLM2
  llama3,  // <|start_header_id|>user<|end_header_id|>\n\n...<|eot_id|>
  zephyr,  // <|user|>\n...</s>\n: TinyLlama
  phi3     // <|user|>\n...<|end|>\n
};
template <>
inline constexpr std::array enumerator_names<ChatFormat>{"chatml", "llama3", "zephyr", "phi3"};

struct KnownTemplate {
  std::string_view source;  // where its text was found
  std::string_view sha256;  // of its normal_form()
  ChatFormat format;
  bool begins;           // with the token that begins texts
  bool has_own_message;  // says who the assistant is where no message does
};

std::span<const KnownTemplate> known_templates();

// The row of a template, or null if it is none of them.
const KnownTemplate* find_known_template(std::string_view chat_template);

// A text that two templates have in common only if they render the same: without comments, without
// blanks within {% %} and {{ }} but for those in quotes, and without the blanks that jinja drops
// around tags, as transformers sets it (trim_blocks, lstrip_blocks) or a - in the tag asks for.
std::string normal_form(std::string_view chat_template);

// The template that a model's folder has: chat_template.jinja, or else the field chat_template of
// tokenizer_config.json or chat_template.json; where that has several with names, the default.
std::optional<std::string> chat_template_in(const std::filesystem::path& directory);

}  // namespace spool
