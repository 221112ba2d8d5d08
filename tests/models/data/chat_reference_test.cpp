// Chats: the ids and what is learnt are those of transformers, by which
// tests/reference/chats/make_chat_reference.py made the file of 2400 conversations.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spool/models/data/chats/chat.h"
#include "spool/models/data/sha256.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

const std::filesystem::path reference = source_folder() / "tests/reference";

std::string hash_of(const Example& example) {
  std::string text;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    text += sentence(i > 0 ? " " : "", example.tokens[i], ":", int{example.learnt[i]});
  }
  return sha256(text).substr(0, 16);
}

// A letter of the file may be two bytes.
std::string content_of_letters(const std::string& letters, const json& texts) {
  std::string content;
  for (size_t at = 0; at < letters.size();) {
    const size_t size = static_cast<unsigned char>(letters[at]) < 0x80 ? 1 : 2;
    content += texts.at(letters.substr(at, size)).get<std::string>();
    at += size;
  }
  return content;
}

std::vector<ChatMessage> messages_of(const json& chat, const json& texts) {
  const std::map<std::string, std::string> roles{
      {"s", "system"}, {"u", "user"}, {"a", "assistant"}};
  std::vector<ChatMessage> messages;
  for (const json& message : chat.at("messages")) {
    messages.push_back({roles.at(message.at(0)), content_of_letters(message.at(1), texts)});
  }
  return messages;
}

// How it begins in generate; nothing if its system message is empty, which is none there.
std::vector<int32_t> begun(const Chat& chat, std::span<const ChatMessage> messages) {
  const bool has_system = messages.front().role == "system";
  const std::string system = has_system ? messages.front().content : "";
  if (has_system && system.empty()) return {};
  return chat.begin(system, messages[has_system ? 1 : 0].content);
}

class ChatsOfTransformers : public ::testing::TestWithParam<size_t> {};

TEST_P(ChatsOfTransformers, HaveTheSameIdsAndLearnTheSame) {
  const json file = json::parse(content_of(reference / "chats/chats.json"));
  const json& style = file.at("formats").at(GetParam());
  const std::string name = style.at("format");
  const TemporaryDirectory d;
  json tokenizer_file =
      json::parse(content_of(reference / "tokenizers" / style.at("tokenizer").get<std::string>()));
  tokenizer_file["added_tokens"] = style.at("added_tokens");
  const auto tokenizer = read_tokenizer_json(d.file("tokenizer.json", tokenizer_file.dump()));
  d.file("tokenizer_config.json", json{{"bos_token", style.at("begin")}}.dump());
  const Chat chat = open_chat(parse_chat_format(name).value(), *tokenizer, d.path());
  int compared = 0, wrong = 0;
  for (const json& c : style.at("chats")) {
    const std::vector<ChatMessage> messages = messages_of(c, file.at("texts"));
    const Example example = chat.encode(messages);
    if (c.contains("ids")) {
      EXPECT_EQ(example.tokens, c.at("ids").get<std::vector<int32_t>>());
      EXPECT_EQ(example.learnt, c.at("learnt").get<std::vector<uint8_t>>());
    }
    const bool is_same = hash_of(example) == c.at("hash");
    if (!is_same && ++wrong <= 5) {
      ADD_FAILURE() << name << ' ' << compared << ": " << c << json(example.tokens)
                    << json(example.learnt);
    }
    // A token may span the end of the prompt and the beginning of the answer.
    const std::vector<int32_t> prompt = begun(chat, messages);
    const auto same = std::ranges::mismatch(prompt, example.tokens).in1 - prompt.begin();
    EXPECT_GE(same + 1, std::ssize(prompt)) << c;
    ++compared;
  }
  EXPECT_EQ(compared, 400);
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, ChatsOfTransformers, ::testing::Range<size_t>(0, 6));

}  // namespace
}  // namespace spool::testing
