// Formats of chats: those that have a name, those in files, and what they make of messages.

#include "spool/models/data/chats/chat_format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "spool/models/data/chats/chat.h"
#include "spool/models/tokenizers/json_tokenizer.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

using nlohmann::json;

// The file that docs/files.md shows, which is ChatML's.
std::string documented_format() {
  const std::string text = content_of(source_folder() / "docs/files.md");
  const size_t begin = text.find("{\n  \"begin_token\"");
  return text.substr(begin, text.find("```", begin) - begin);
}

json chatml_file() { return json::parse(documented_format()); }

// A tokenizer of bytes and words that also has these tokens.
std::unique_ptr<Tokenizer> tokenizer_with(const TemporaryDirectory& d,
                                          std::initializer_list<const char*> names) {
  json file = json::parse(content_of(source_folder() / "tests/reference/tokenizers/qwen2.json"));
  json& added = file["added_tokens"];
  for (const char* name : names) {
    json token = added.front();
    token["content"] = name;
    token["id"] = file["model"]["vocab"].size() + added.size();
    added.push_back(token);
  }
  return read_tokenizer_json(d.file("tokenizer.json", file.dump()));
}

// With what is learnt in brackets.
std::string text_of(const Tokenizer& tokenizer, const Example& example) {
  std::string text;
  for (size_t i = 0; i < example.tokens.size(); ++i) {
    const bool is_learnt = example.learnt[i] != 0, was = i > 0 && example.learnt[i - 1] != 0;
    if (is_learnt != was) text += is_learnt ? "[" : "]";
    text += tokenizer.decode_rest(std::span(&example.tokens[i], 1));
  }
  return text + (example.learnt.back() ? "]" : "");
}

TEST(ChatFormats, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ChatFormat& format : chat_formats()) {
    EXPECT_TRUE(names.insert(format.name).second);
    EXPECT_FALSE(format.assistant.end.empty());
    const auto found = parse_chat_format(format.name + "+bos");
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->begins_with_token);
  }
  EXPECT_FALSE(parse_chat_format("chatml")->begins_with_token);
  EXPECT_TRUE(parse_chat_format("llama3")->begins_with_token);
}

TEST(ChatFormats, AreReadFromTheFileThatIsDocumented) {
  const TemporaryDirectory d;
  const ChatFormat read = read_chat_format(d.file("mine.json", documented_format()));
  const ChatFormat wanted = parse_chat_format("chatml").value();
  EXPECT_TRUE(read.name.ends_with("mine.json"));
  EXPECT_EQ(read.begins_with_token, wanted.begins_with_token);
  EXPECT_EQ(read.begin, wanted.begin);
  EXPECT_EQ(read.lead, wanted.lead);
  EXPECT_EQ(read.joint, wanted.joint);
  for (const auto& [ours, theirs] : {std::pair(read.system.value(), wanted.system.value()),
                                     {read.user, wanted.user},
                                     {read.assistant, wanted.assistant}}) {
    EXPECT_EQ(ours.before, theirs.before);
    EXPECT_EQ(ours.end, theirs.end);
    EXPECT_EQ(ours.after, theirs.after);
    EXPECT_EQ(ours.trims, theirs.trims);
  }
  EXPECT_EQ(named_chat_format(read.name).name, read.name);
}

TEST(ChatFormats, InFilesAreRefusedByTheFieldThatIsWrong) {
  const TemporaryDirectory d;
  const auto refused = [&](const json& file, const std::string& field) {
    SCOPED_TRACE(field);
    expect_error(ErrorKind::file, {"mine.json", field},
                 [&] { read_chat_format(d.file("mine.json", file.dump())); });
  };
  const json right = chatml_file();
  for (const auto& [key, value] : right.items()) {
    json lacks = right, is_wrong = right;
    lacks.erase(key);
    is_wrong[key] = 7;
    refused(lacks, key);
    refused(is_wrong, "field " + key);
    if (!value.is_object()) continue;
    for (const auto& [inner, _] : value.items()) {
      lacks = is_wrong = right;
      lacks[key].erase(inner);
      is_wrong[key][inner] = nullptr;
      refused(lacks, inner);
      refused(is_wrong, "field " + key + "." + inner);
    }
    json has_more = right;
    has_more[key]["role"] = "x";
    refused(has_more, "field " + key + ".role");
  }
  json more = right, no_end = right, joined = right;
  more["name"] = "mine";
  refused(more, "field name");
  no_end["assistant"]["end"] = "";
  refused(no_end, "field assistant.end");
  joined["system"]["join"] = "\n";
  refused(joined, "field system.");
  joined["system"] = {{"join", 7}};
  refused(joined, "field system.join");
  more["user"]["lead"] = "";
  refused(more, "field ");
  for (const char* none : {"mine", "chatml+", ""}) {
    const ErrorFields fields = expect_error(ErrorKind::invalid, {"is none of chatml, llama3"},
                                            [&] { named_chat_format(none); });
    EXPECT_EQ(fields.settings, std::vector<std::string>{"chat-format"});
  }
  expect_error(ErrorKind::file, {"none.json"}, [&] { named_chat_format("none.json"); });
}

TEST(ChatFormats, JoinWhatTheSystemSaysOrRefuseIt) {
  const TemporaryDirectory d;
  const auto tokenizer = tokenizer_with(d, {"<start_of_turn>", "<end_of_turn>"});
  const Chat gemma(parse_chat_format("gemma").value(), *tokenizer);
  const std::vector<ChatMessage> chat{{"system", "Be kind. "},
                                      {"user", " Hi\n"},
                                      {"assistant", "\u3000Hello\u00a0"},
                                      {"user", "So?"}};
  const std::string begun =
      "<start_of_turn>user\nBe kind. \n\nHi<end_of_turn>\n<start_of_turn>model\n";
  EXPECT_EQ(text_of(*tokenizer, gemma.encode(chat)),
            begun + "[Hello<end_of_turn>]\n<start_of_turn>user\nSo?<end_of_turn>\n");
  EXPECT_EQ(tokenizer->decode(gemma.begin("Be kind. ", " Hi\n")), begun);
  const std::vector<ChatMessage> late{{"user", "Hi"}, {"system", "Be kind."}, {"user", "So?"}};
  expect_error(ErrorKind::invalid, {"gemma", "the system comes first"},
               [&] { gemma.encode(late); });
  const std::vector<ChatMessage> alone{{"system", "Be kind."}, {"assistant", "Hi"}};
  expect_error(ErrorKind::invalid, {"one of the user follows"}, [&] { gemma.encode(alone); });
  const Chat gemma2(parse_chat_format("gemma2").value(), *tokenizer);
  expect_error(ErrorKind::invalid, {"gemma2", "no message of the system"},
               [&] { gemma2.encode(chat); });
  EXPECT_EQ(gemma2.begin("", "Hi"), gemma.begin("", "Hi"));
}

TEST(ChatFormats, MayHaveTurnsWithoutAnEndAndAnswersWithALead) {
  const TemporaryDirectory d;
  const auto tokenizer = tokenizer_with(d, {"</s>", "[INST]", "[/INST]"});
  const Chat mistral(parse_chat_format("mistral").value(), *tokenizer);
  const std::vector<ChatMessage> chat{{"system", "Be kind."},
                                      {"user", "Hi "},
                                      {"assistant", " Hello "},
                                      {"user", "So?"},
                                      {"assistant", "No."}};
  EXPECT_EQ(text_of(*tokenizer, mistral.encode(chat)),
            "[INST] Be kind.\n\nHi [/INST][ Hello</s>][INST] So?[/INST][ No.</s>]");
  EXPECT_EQ(tokenizer->decode(mistral.begin("Be kind.", "Hi ")), "[INST] Be kind.\n\nHi [/INST]");
  EXPECT_EQ(tokenizer->decode(mistral.next_turn(mistral.end(), "So?")), "[INST] So?[/INST]");
  EXPECT_EQ(tokenizer->decode(mistral.next_turn(5, "So?")), "</s>[INST] So?[/INST]");
}

TEST(ChatFormats, TrimAsPythonDoes) {
  const TemporaryDirectory d;
  const auto tokenizer =
      tokenizer_with(d, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  const Chat llama3(parse_chat_format("llama3").value(), *tokenizer);
  const auto said = [&](const std::string& content) {
    const std::vector<ChatMessage> chat{{"user", "?"}, {"assistant", content}};
    return llama3.encode(chat).tokens;
  };
  for (const char* blank : {" ", "\n", "\v", "\x1c", "\x1f", "\u0085", "\u00a0", "\u1680", "\u2000",
                            "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    EXPECT_EQ(said(sentence(blank, "a", blank, "b", blank, blank)),
              said(sentence("a", blank, "b")));
    EXPECT_EQ(said(blank), said(""));
  }
  for (const char* kept : {"\u200b", "\ufeff", "\u180e", "\x1b", "\u00a1", "\u2010"}) {
    EXPECT_NE(said(kept), said("")) << kept;
  }
}

}  // namespace
}  // namespace spool::testing
