// Reads a format from JSON.

#include "spool/models/data/chats/chat_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "spool/runtime/files/file.h"
#include "spool/runtime/files/json.h"

namespace spool {

namespace fs = std::filesystem;

namespace {

// The words of a format whose messages differ in the name of their role alone.
struct AlikeWords {
  std::string_view before_role, after_role, end, after;
  bool trims = false;
};

ChatFormat alike_format(std::string_view name, const AlikeWords& words) {
  const auto message = [&](std::string_view role) {
    return ChatFormat::Message{.before = sentence(words.before_role, role, words.after_role),
                               .end = std::string(words.end),
                               .after = std::string(words.after),
                               .trims = words.trims};
  };
  return {.name = std::string(name),
          .system = message("system"),
          .user = message("user"),
          .assistant = message("assistant")};
}

ChatFormat llama3_format() {
  ChatFormat format =
      alike_format("llama3", {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "",
                              /*trims=*/true});
  format.begins_with_token = true;
  return format;
}

ChatFormat gemma_format(std::string_view name, std::optional<std::string> joint) {
  ChatFormat format = alike_format(name, {"<start_of_turn>", "\n", "<end_of_turn>", "\n",
                                          /*trims=*/true});
  format.begins_with_token = true;
  format.system = {};
  format.joint = std::move(joint);
  format.assistant.before = "<start_of_turn>model\n";
  return format;
}

ChatFormat mistral_format() {
  return {.name = "mistral",
          .begins_with_token = true,
          .joint = "\n\n",
          .user = {.before = "[INST] ", .after = "[/INST]"},
          .assistant = {.end = "</s>", .trims = true},
          .lead = " "};
}

const std::vector<ChatFormat>& format_table() {
  static const std::vector<ChatFormat> table{
      alike_format("chatml", {"<|im_start|>", "\n", "<|im_end|>", "\n"}),
      llama3_format(),
      alike_format("zephyr", {"<|", "|>\n", "</s>", "\n"}),
      alike_format("phi3", {"<|", "|>\n", "<|end|>", "\n"}),
      gemma_format("gemma", "\n\n"),
      gemma_format("gemma2", {}),
      mistral_format(),
      alike_format("granite", {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "\n"})};
  return table;
}

void expect_fields(const JsonField& object, std::initializer_list<const char*> fields) {
  std::string names;
  for (const char* field : fields) names += sentence(names.empty() ? "" : ", ", field);
  for (const JsonField& member : object.members()) {
    const bool is_known = std::ranges::find(fields, member.key()) != fields.end();
    member.expect(is_known, "is no field of a format of chats; here it has ", names);
  }
}

ChatFormat::Message message_in(const JsonField& object) {
  return {.before = object.member("before").string(),
          .end = object.member("end").string(),
          .after = object.member("after").string(),
          .trims = object.member("trim").boolean()};
}

void read_system(const JsonField& system, ChatFormat& format) {
  if (system.is_null()) return;
  if (system.find("join")) {
    expect_fields(system, {"join"});
    format.joint = system.member("join").string();
    return;
  }
  expect_fields(system, {"before", "trim", "end", "after"});
  format.system = message_in(system);
}

}  // namespace

std::span<const ChatFormat> chat_formats() { return format_table(); }

std::string chat_format_names() {
  std::string names;
  for (const ChatFormat& format : format_table()) {
    names += sentence(names.empty() ? "" : ", ", format.name);
  }
  return names;
}

std::optional<ChatFormat> parse_chat_format(std::string_view text) {
  constexpr std::string_view with_begin = "+bos";
  const bool begins = text.ends_with(with_begin);
  if (begins) text.remove_suffix(with_begin.size());
  const auto found = std::ranges::find(format_table(), text, &ChatFormat::name);
  if (found == format_table().end()) return {};
  ChatFormat format = *found;
  format.begins_with_token |= begins;
  return format;
}

ChatFormat read_chat_format(const fs::path& path) {
  const JsonField file = read_json(path);
  ChatFormat format{.name = path.string()};
  expect_fields(file, {"begin_token", "begin", "system", "user", "assistant"});
  format.begins_with_token = file.member("begin_token").boolean();
  format.begin = file.member("begin").string();
  read_system(file.member("system"), format);
  const JsonField user = file.member("user"), assistant = file.member("assistant");
  expect_fields(user, {"before", "trim", "end", "after"});
  expect_fields(assistant, {"before", "lead", "trim", "end", "after"});
  format.user = message_in(user), format.assistant = message_in(assistant);
  format.lead = assistant.member("lead").string();
  assistant.member("end").expect(!format.assistant.end.empty(),
                                 "is empty; a token must end what the assistant says");
  return format;
}

ChatFormat named_chat_format(const std::string& name_or_path) {
  if (const auto known = parse_chat_format(name_or_path)) return *known;
  const bool is_path = name_or_path.ends_with(".json") || path_exists(name_or_path);
  check_setting(is_path, {"chat-format"}, "the format of chats '", name_or_path, "' is none of ",
                chat_format_names(),
                ", with or without +bos after it, and no file that describes one");
  return read_chat_format(name_or_path);
}

}  // namespace spool
