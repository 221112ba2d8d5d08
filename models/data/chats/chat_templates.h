#pragma once

// Recognises chat templates, which are programs in jinja.  Spool does not run them: it knows some
// by their SHA-256, and what they render.  However alike, no other is taken for one of these.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "spool/models/data/chats/chat_format.h"

namespace spool {

struct KnownTemplate {
  std::string_view source;  // where its text was found
  std::string_view sha256;  // of its normal_form()
  std::string_view format;  // its name
  bool begins;              // with the beginning-of-text token
  bool has_own_message;     // adds a system message if the conversation has none
};

std::span<const KnownTemplate> known_templates();

// What it renders.
ChatFormat format_of(const KnownTemplate&);

// The table's entry for a template, or null if it is not a known one.
const KnownTemplate* find_known_template(std::string_view chat_template);

// A normal form, equal only for templates that render the same: without comments, without spaces
// inside {% %} and {{ }} except in quotes, and without the spaces around tags that jinja drops,
// either by transformers' options (trim_blocks, lstrip_blocks) or because of a - in the tag.
std::string normal_form(std::string_view chat_template);

// The template in a model's folder: chat_template.jinja, or else the field chat_template of
// tokenizer_config.json or chat_template.json; of several named ones, the default.
std::optional<std::string> chat_template_in(const std::filesystem::path& directory);

}  // namespace spool
