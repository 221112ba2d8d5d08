#pragma once

// How a conversation is written as the text that a model was trained on, as data:
//
//   [the token that begins texts] begin, and of each message  before content end after
//
// where `end` is one token.  The model is prompted by the assistant's `before`, and writes a lead,
// its content and the end.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace spool {

struct ChatFormat {
  struct Message {
    std::string before = {};
    std::string end = {};  // empty: none, as where the assistant's answer follows at once
    std::string after = {};
    bool trims = false;  // strips white space around the content
  };

  std::string name = {};  // or the path of its file
  bool begins_with_token = false;
  std::string begin = {};
  std::optional<Message> system = {};  // none: it has no turn
  // Where it has none, what stands between its text and that of the user's first message, which
  // follows; none, too: refused.
  std::optional<std::string> joint = {};
  Message user = {}, assistant = {};
  std::string lead = {};
};

// Those that Spool knows by a name.
std::span<const ChatFormat> chat_formats();
std::string chat_format_names();

// A known format by its name, which may be followed by "+bos": the token that begins texts comes
// first.
std::optional<ChatFormat> parse_chat_format(std::string_view);

// Reads a format from a file of JSON, which docs/files.md describes.  Throws if a field is missing,
// wrong, or none of a format's.
ChatFormat read_chat_format(const std::filesystem::path&);

// The format of a name or in a file.  Throws, of the setting chat-format, if it is neither.
ChatFormat named_chat_format(const std::string& name_or_path);

}  // namespace spool
