// Chats: the texts of conversations, and where a text that comes in parts ends.

#include "spool/models/inference/chat.h"

#include <gtest/gtest.h>

#include "spool/models/inference/continuation.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

std::unique_ptr<Tokenizer> reference(const std::string& name) {
  return read_tokenizer_json(source_folder() / "tests/reference/tokenizers" / name);
}

TEST(Chat, RendersMessagesAsTheTemplatesDo) {
  const auto tokenizer = reference("qwen2.json");
  const Chat chat(ChatFormat::chatml, *tokenizer);
  const auto text = [&](const std::vector<int32_t>& tokens) { return tokenizer->decode(tokens); };
  EXPECT_EQ(text(chat.begin("", "Hi there")),
            "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text(chat.begin("Be kind.", " Hi ")),
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(text(chat.go_on(chat.end(), "And?")),
            "\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text(chat.go_on(5, "And?")),
            "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.end(), tokenizer->token_id("<|im_end|>"));
  // The tokens are those of the text as a whole.
  std::vector<int32_t> whole;
  tokenizer->encode(text(chat.begin("", "Hi there")), whole);
  EXPECT_EQ(chat.begin("", "Hi there"), whole);
}

TEST(Chat, ZephyrEndsMessagesWithTheTokenOfTheVocabulary) {
  const auto tokenizer = reference("sentencepiece.json");
  const Chat chat(ChatFormat::zephyr, *tokenizer);
  const std::vector<int32_t> tokens = chat.begin("", "Hi");
  EXPECT_EQ(tokenizer->decode(tokens), "<|user|>\nHi</s> \n<|assistant|>\n");
  EXPECT_NE(tokens.front(), tokenizer->begin_of_text().front());
  EXPECT_EQ(std::ranges::count(tokens, chat.end()), 1);
}

TEST(Chat, RefusesATokenizerWithoutTheFormatsTokens) {
  const auto tokenizer = reference("qwen2.json");
  expect_error(ErrorKind::invalid, {"<|eot_id|>", "llama3"},
               [&] { Chat(ChatFormat::llama3, *tokenizer); });
  expect_error(ErrorKind::invalid, {"<|im_end|>", "chatml"},
               [&] { Chat(ChatFormat::chatml, *make_byte_tokenizer()); });
}

TEST(Chat, FindsTheFormatOfATemplate) {
  EXPECT_EQ(chat_format_of("{{ '<|im_start|>' + role }}"), ChatFormat::chatml);
  EXPECT_EQ(chat_format_of("<|start_header_id|>"), ChatFormat::llama3);
  EXPECT_EQ(chat_format_of("'<|user|>' '<|assistant|>'"), ChatFormat::zephyr);
  EXPECT_EQ(chat_format_of("[INST] {{ content }} [/INST]"), std::nullopt);
  EXPECT_TRUE(has_system_message("system\\nYou are Qwen, created"));
  EXPECT_FALSE(has_system_message("{{ message.content }}"));
}

TEST(Chat, ReadsTheTemplateOfAFolder) {
  const TemporaryDirectory d;
  EXPECT_EQ(chat_template_in(d.path()), std::nullopt);
  d.file("tokenizer_config.json", R"({"bos_token": null})");
  EXPECT_EQ(chat_template_in(d.path()), std::nullopt);
  d.file("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(chat_template_in(d.path()), "one");
  d.file("tokenizer_config.json", R"({"chat_template": [{"name": "tools", "template": "two"},
                                                        {"name": "default", "template": "three"}]})");
  EXPECT_EQ(chat_template_in(d.path()), "three");
  for (const char* wrong : {R"({"chat_template": 7})", R"({"chat_template": [7]})",
                            R"({"chat_template": [{"name": "default"}]})", "{", "[]"}) {
    d.file("tokenizer_config.json", wrong);
    expect_error(ErrorKind::file, {"tokenizer_config.json"}, [&] { chat_template_in(d.path()); });
  }
  d.file("chat_template.jinja", "four");
  EXPECT_EQ(chat_template_in(d.path()), "four");
}

// Every way to cut a text gives the same.
TEST(StopTexts, EndATextBeforeTheFirstOfThem) {
  const std::vector<std::string> stops{"END", "\n\n", "ENDED"};
  const auto until = [&](const std::string& text, size_t cut, size_t next) {
    StopTexts found(stops);
    std::string known = found.add(text.substr(0, cut));
    known += found.add(text.substr(cut, next));
    known += found.add(text.substr(std::min(text.size(), cut + next)));
    const bool ended = found.found();
    return std::pair(known + found.finish(), ended);
  };
  struct Case {
    const char *text, *known;
    bool ended;
  };
  for (const Case& c : {Case{"one END two", "one ", true},
                        {"one EN", "one EN", false},
                        {"a\nb\n\nEND", "a\nb", true},
                        {"EEND", "E", true},
                        {"ENENDED", "EN", true},
                        {"", "", false}}) {
    const std::string text = c.text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      for (size_t next = 0; cut + next <= text.size(); ++next) {
        EXPECT_EQ(until(text, cut, next), std::pair(std::string(c.known), c.ended)) << text << cut;
      }
    }
  }
}

TEST(StopTexts, HoldBackOnlyWhatMayBeOne) {
  StopTexts found({"END"});
  EXPECT_EQ(found.add("one E"), "one ");
  EXPECT_EQ(found.add("x"), "Ex");
  EXPECT_EQ(found.add("EN"), "");
  EXPECT_EQ(found.finish(), "EN");
}

TEST(Continuation, FindsATextThatSpansTokens) {
  const auto bytes = make_byte_tokenizer();
  Continuation added(*bytes, TextStream::From::middle, {"cd"});
  std::string text;
  for (const char c : std::string("abcde")) text += added.add(c);
  EXPECT_EQ(text + added.finish(), "ab");
  EXPECT_TRUE(added.is_stopped());
  EXPECT_EQ(added.tokens(), 5);
}

}  // namespace
}  // namespace spool::testing
