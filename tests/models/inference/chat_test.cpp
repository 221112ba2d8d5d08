// Chats: the texts of conversations, and where a text that comes in parts ends.

#include "spool/models/data/chats/chat.h"

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

ChatFormat format(const char* name) { return parse_chat_format(name).value(); }

TEST(Chat, RendersMessagesAsTheTemplatesDo) {
  const auto tokenizer = reference("qwen2.json");
  const Chat chat(format("chatml"), *tokenizer);
  const auto text = [&](const std::vector<int32_t>& tokens) { return tokenizer->decode(tokens); };
  EXPECT_EQ(text(chat.begin("", "Hi there")),
            "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text(chat.begin("Be kind.", " Hi ")),
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(text(chat.next_turn(chat.end(), "And?")),
            "\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text(chat.next_turn(5, "And?")),
            "<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(chat.end(), tokenizer->token_id("<|im_end|>"));
  // The tokens are those of the text as a whole.
  std::vector<int32_t> whole;
  tokenizer->encode(text(chat.begin("", "Hi there")), whole);
  EXPECT_EQ(chat.begin("", "Hi there"), whole);
}

TEST(Chat, ZephyrEndsMessagesWithTheTokenOfTheVocabulary) {
  const auto tokenizer = reference("sentencepiece.json");
  const Chat chat(format("zephyr"), *tokenizer);
  const std::vector<int32_t> tokens = chat.begin("", "Hi");
  EXPECT_EQ(tokenizer->decode(tokens), "<|user|>\nHi</s> \n<|assistant|>\n");
  EXPECT_NE(tokens.front(), tokenizer->begin_of_text().front());
  EXPECT_EQ(std::ranges::count(tokens, chat.end()), 1);
}

TEST(Chat, RefusesATokenizerWithoutTheFormatsTokens) {
  const auto tokenizer = reference("qwen2.json");
  expect_error(ErrorKind::invalid, {"<|eot_id|>", "llama3"},
               [&] { Chat(format("llama3"), *tokenizer); });
  expect_error(ErrorKind::invalid, {"<|im_end|>", "chatml"},
               [&] { Chat(format("chatml"), *make_byte_tokenizer()); });
}

TEST(Chat, BeginsWithTheTokenThatBeginsTextsWhereTheFormatSaysSo) {
  const TemporaryDirectory d;
  const auto qwen2 = reference("qwen2.json");
  std::string text = content_of(source_folder() / "tests/reference/tokenizers/llama3.json");
  constexpr std::string_view other = "\"<|im_end|>\"";
  text.replace(text.find(other), other.size(), "\"<|eot_id|>\"");
  const auto llama3 = read_tokenizer_json(d.file("llama3.json", text));
  const auto first = [&](const char* name, const Tokenizer& tokenizer) {
    return open_chat(format(name), tokenizer, d.path()).begin("", "Hi").front();
  };
  EXPECT_EQ(first("llama3", *llama3), llama3->begin_of_text().front());
  EXPECT_EQ(first("chatml", *qwen2), qwen2->token_id("<|im_start|>"));
  expect_error(ErrorKind::file, {d.path().string(), "begins texts", "bos_token"},
               [&] { first("chatml+bos", *qwen2); });
  for (const char* name : {R"("<|endoftext|>")", R"({"content": "<|endoftext|>"})"}) {
    d.file("tokenizer_config.json", sentence("{\"bos_token\": ", name, "}"));
    EXPECT_EQ(first("chatml+bos", *qwen2), qwen2->token_id("<|endoftext|>"));
    EXPECT_EQ(first("chatml", *qwen2), qwen2->token_id("<|im_start|>"));
  }
  for (const char* none : {"", "bos", "+bos", "chatml+", "chatml+eos", "ChatML"}) {
    EXPECT_FALSE(parse_chat_format(none)) << none;
  }
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
