// Chats compared with jinja2's rendering of templates from packages, which
// tests/end_to_end/chat_templates_test.py writes into the folder that SPOOL_CHAT_TEMPLATES names.

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "spool/models/data/chats/chat.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/runtime/files/json.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

// A byte tokenizer with the tokens of all formats.
std::unique_ptr<Tokenizer> tokenizer_of_all(const TemporaryDirectory& d) {
  json file = json::parse(content_of(source_folder() / "tests/reference/tokenizers/qwen2.json"));
  json& added = file["added_tokens"];
  for (const char* name : {"<begin>", "<|eot_id|>", "</s>", "<|end|>", "<|start_header_id|>",
                           "<|end_header_id|>", "<end_of_turn>", "<|end_of_text|>"}) {
    json token = added.front();
    token["content"] = name;
    token["id"] = file["model"]["vocab"].size() + added.size();
    added.push_back(token);
  }
  return read_tokenizer_json(d.file("tokenizer.json", file.dump()));
}

// The messages of a text, each from the end of the one before.
std::vector<std::string> turns_of(std::string_view text, std::string_view end) {
  std::vector<std::string> turns;
  for (size_t at = 0; at <= text.size();) {
    const size_t next = std::min(text.find(end, at), text.size());
    turns.emplace_back(text.substr(at, next - at));
    at = next + end.size();
  }
  return turns;
}

// Llama 3.1 and 3.2 put a date before the system message's text.
void expect_same(const std::string& ours, const std::string& theirs, std::string_view end,
                 const std::string& system) {
  const auto left = turns_of(ours, end), right = turns_of(theirs, end);
  ASSERT_EQ(left.size(), right.size()) << theirs;
  for (size_t i = 0; i < left.size(); ++i) {
    if (i == 0 && left[i] != right[i]) {
      EXPECT_TRUE(left[i].ends_with(system) && right[i].ends_with(system)) << right[i];
      const std::string header = left[i].substr(0, left[i].size() - system.size());
      EXPECT_TRUE(right[i].starts_with(header)) << right[i];
      continue;
    }
    EXPECT_EQ(left[i], right[i]);
  }
}

TEST(ChatReference, IsWhatTheTemplatesOfPackagesRender) {
  const char* folder = std::getenv("SPOOL_CHAT_TEMPLATES");
  if (!folder) GTEST_SKIP() << "SPOOL_CHAT_TEMPLATES names no folder";
  const TemporaryDirectory d;
  d.file("tokenizer_config.json", R"({"bos_token": "<begin>"})");
  const auto tokenizer = tokenizer_of_all(d);
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename().string());
    const JsonField file = read_json(entry.path());
    const auto text = [&](const char* key) { return file.member(key).string(); };
    const KnownTemplate* known = find_known_template(text("template"));
    ASSERT_TRUE(known);
    EXPECT_EQ(normal_form(text("template")), text("normal_form"));
    EXPECT_EQ(known->source, text("source"));
    const Chat chat = open_chat(format_of(*known), *tokenizer, d.path());
    const std::vector<int32_t> end{chat.end()};
    std::vector<int32_t> tokens = chat.begin(text("system"), text("user"));
    const std::string begun = tokenizer->decode(tokens);
    expect_same(begun, text("begun"), tokenizer->decode(end), text("system"));
    tokenizer->encode(text("answer"), tokens);
    tokens.push_back(chat.end());
    for (const int32_t token : chat.next_turn(chat.end(), text("second"))) tokens.push_back(token);
    expect_same(tokenizer->decode(tokens), text("gone_on"), tokenizer->decode(end), text("system"));
    // Without a system message a template adds its own one, or renders what we do.
    const std::string plain = tokenizer->decode(chat.begin("", text("user")));
    EXPECT_EQ(plain != text("plain"), known->has_own_message) << text("plain");
    ++found;
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace spool::testing
