// Examples: lines of JSON become tokens, of which some are learnt, and rows.

#include "spool/models/data/examples.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/json_tokenizer.h"
#include "spool/runtime/random.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

// Without the token "<|im_end|>\n", which the reference has to be hard on tokenizers.
std::unique_ptr<Tokenizer> reference_without_joined_tokens(const TemporaryDirectory& directory) {
  auto file = nlohmann::json::parse(
      content_of(source_folder() / "tests/reference/tokenizers/smollm2.json"));
  auto& added = file["added_tokens"];
  for (size_t i = added.size(); i-- > 0;) {
    if (added[i]["content"] == "<|im_end|>\n") added[i]["content"] = "<unused>";
  }
  return read_tokenizer_json(directory.file("tokenizer.json", file.dump()));
}

class ExamplesOfLines : public ::testing::Test {
 protected:
  Examples read(const std::string& lines, const ExampleOptions& options = {},
                bool has_chat = true) const {
    Examples examples;
    examples.read(directory.file("lines.jsonl", lines), *tokenizer,
                  has_chat ? std::optional(chat) : std::nullopt, options);
    return examples;
  }
  // With what is learnt in brackets.
  std::string text_of(const Examples& examples, int64_t example = 0) const {
    const auto tokens = examples.tokens(example);
    const auto learnt = examples.learnt(example);
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool is_learnt = learnt[i] != 0, was = i > 0 && learnt[i - 1] != 0;
      if (is_learnt != was) text += is_learnt ? "[" : "]";
      text += tokenizer->decode_rest(tokens.subspan(i, 1));
    }
    return text + (learnt.back() ? "]" : "");
  }
  void expect_refusal(const std::string& lines,
                      std::initializer_list<std::string_view> words) const {
    expect_error(ErrorKind::file, words, [&] { read(lines); });
  }

  TemporaryDirectory directory;
  std::unique_ptr<Tokenizer> tokenizer = reference_without_joined_tokens(directory);
  Chat chat{parse_chat_format("chatml").value(), *tokenizer};
};

TEST_F(ExamplesOfLines, LearnsWhatTheAssistantSays) {
  const std::string wanted =
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Hello there<|im_end|>]\n"
      "<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n[\nYes.\n<|im_end|>]\n";
  const std::string parts =
      R"([{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}])";
  EXPECT_EQ(text_of(read(R"({"messages": [{"role": "user", "content": "Hi"}, )"
                         R"({"role": "assistant", "content": )" +
                         parts +
                         R"(}, {"role": "user", "content": "And?"}, )"
                         R"({"role": "assistant", "content": "\nYes.\n"}], "id": 7})")),
            wanted);
  EXPECT_EQ(text_of(read(R"({"conversations": [{"from": "human", "value": "Hi"}, )"
                         R"({"from": "gpt", "value": "Hello there"}, )"
                         R"({"from": "human", "value": "And?"}, )"
                         R"({"from": "gpt", "value": "\nYes.\n"}]})")),
            wanted);
}

TEST_F(ExamplesOfLines, OfOtherFormsAreWhatTheySay) {
  EXPECT_EQ(text_of(read(R"({"instruction": "Add.", "input": "1 2", "output": "3"})")),
            "<|im_start|>user\nAdd.\n1 2<|im_end|>\n<|im_start|>assistant\n[3<|im_end|>]\n");
  EXPECT_EQ(text_of(read(R"({"instruction": "Sing.", "output": "La"})", {.system = "Be brief."})),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSing.<|im_end|>\n"
            "<|im_start|>assistant\n[La<|im_end|>]\n");
  const int32_t stop = *tokenizer->token_id("<|endoftext|>");
  EXPECT_EQ(text_of(read(R"({"prompt": "1+1=", "completion": "2"})", {.stop = stop})),
            "1+1=[2<|endoftext|>]");
  EXPECT_EQ(text_of(read(R"({"prompt": "1+1=", "response": "2"})", {.stop = stop})),
            "1+1=[2<|endoftext|>]");
  EXPECT_EQ(text_of(read(R"({"text": "Once"})", {.stop = stop}, /*has_chat=*/false)),
            "[Once<|endoftext|>]");
  EXPECT_EQ(text_of(read(R"({"prompt": "1+1=", "completion": "2"})", {.learn_all = true})),
            "[1+1=2]");
}

// Whatever the contents, the tokens are those of the whole text, and decode to it.
TEST_F(ExamplesOfLines, HaveTheTokensOfTheWholeText) {
  Random random(1);
  const std::vector<std::string> pieces{"",     " ", "\n", "a",       " word", "été",
                                        "日本", "😀", "\t", "e\u0301", "''",    "12345"};
  const auto content = [&] {
    std::string text;
    for (uint64_t n = random.next() % 6; n > 0; --n) text += pieces[random.next() % pieces.size()];
    return text;
  };
  for (int i = 0; i < 200; ++i) {
    std::vector<ChatMessage> messages;
    std::string whole;
    for (uint64_t n = 1 + random.next() % 3; n > 0; --n) {
      for (const char* role : {"user", "assistant"}) {
        messages.push_back({role, content()});
        whole += sentence("<|im_start|>", role, "\n", messages.back().content, "<|im_end|>\n");
      }
    }
    const Example example = chat.encode(messages);
    std::vector<int32_t> tokens;
    tokenizer->encode(whole, tokens);
    EXPECT_EQ(example.tokens, tokens) << whole;
    std::string learnt, said;
    for (size_t t = 0; t < example.tokens.size(); ++t) {
      if (example.learnt[t]) learnt += tokenizer->decode_rest(std::span(&example.tokens[t], 1));
    }
    for (size_t m = 1; m < messages.size(); m += 2) said += messages[m].content + "<|im_end|>";
    // A token may span the end of a header and the beginning of what is said.
    EXPECT_TRUE(learnt.size() >= said.size() && learnt.size() <= said.size() + messages.size())
        << whole;
  }
}

TEST_F(ExamplesOfLines, AreCutAndDroppedAndCounted) {
  const std::string lines =
      "{\"text\": \"one two three four five six seven eight\"}\n\n"
      "{\"prompt\": \"one two three four five six\", \"completion\": \"seven\"}\n"
      "{\"text\": \"a\"}\n{\"text\": \"one two\"}";
  const Examples examples = read(lines, {.seq = 4});
  const ExampleCounts& counts = examples.counts();
  EXPECT_EQ(counts.examples, 4);
  EXPECT_EQ(counts.cut, 2);
  EXPECT_EQ(counts.dropped, 2);  // one lost its completion, one has a token that has no target
  ASSERT_EQ(examples.size(), 2);
  EXPECT_EQ(examples.tokens(0).size(), 5u);
  EXPECT_EQ(counts.tokens, std::ssize(examples.tokens(0)) + std::ssize(examples.tokens(1)));
}

TEST_F(ExamplesOfLines, FillRowsByBestFit) {
  std::string lines;
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    std::string text = "a";
    for (uint64_t n = random.next() % 60; n > 0; --n) text += " b";
    lines += sentence("{\"text\": \"", text, "\"}\n");
  }
  constexpr int64_t seq = 64;
  const Examples examples = read(lines, {.seq = seq});
  const auto rows = rows_of(examples, seq, /*packs=*/true);
  std::vector<bool> is_in(static_cast<size_t>(examples.size()), false);
  int64_t inputs = 0;
  for (const auto& row : rows) {
    int64_t of_row = 0;
    for (const int64_t e : row) {
      EXPECT_FALSE(is_in[static_cast<size_t>(e)]);
      is_in[static_cast<size_t>(e)] = true;
      of_row += examples.inputs(e);
    }
    EXPECT_LE(of_row, seq);
    inputs += of_row;
  }
  EXPECT_EQ(std::ranges::count(is_in, true), examples.size());
  const int64_t least = (inputs + seq - 1) / seq;
  EXPECT_LE(std::ssize(rows), least + least / 10 + 1);
  EXPECT_EQ(rows, rows_of(examples, seq, true));
  EXPECT_EQ(std::ssize(rows_of(examples, seq, /*packs=*/false)), examples.size());
}

TEST_F(ExamplesOfLines, OfTheWrongFormAreRefusedWithTheLineAndTheField) {
  const std::string good = "{\"text\": \"good\"}\n";
  expect_refusal(good + "{\"text\": 3}", {"lines.jsonl, line 2", "field text"});
  expect_refusal(good + good + "[1]", {"line 3", "no JSON object"});
  expect_refusal("{\"question\": \"?\"}", {"line 1", "no known form", "messages"});
  expect_refusal("{\"messages\": []}", {"field messages", "is empty"});
  expect_refusal(R"({"messages": [{"role": "user", "content": "Hi"}]})",
                 {"no message of the assistant"});
  expect_refusal(R"({"messages": [{"role": "assistant", "content": null}]})",
                 {"messages[0].content"});
  expect_refusal(
      R"({"messages": [{"role": "tool", "content": "x"}, {"role": "assistant", "content": "y"}]})",
      {"field messages", "the role 'tool'", "system, user and assistant"});
  expect_refusal(
      R"({"messages": [{"role": "assistant", "content": [{"type": "image", "url": "x"}]}]})",
      {"content[0].type", "image", "text alone"});
  expect_refusal(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]})",
                 {"tool_calls", "tools"});
  expect_refusal(R"({"conversations": [{"from": "bing", "value": "x"}]})",
                 {"from", "bing", "human and gpt"});
  expect_refusal(R"({"prompt": "x"})", {"response", "missing"});
  expect_refusal("{\"text\": \"\xff\"}", {"line 1"});
  expect_refusal("{\"text\": \"cut", {"line 1"});
  expect_refusal("{\"text\": \"" + std::string(size_t{18} << 20, 'a') + "\"}",
                 {"line 1", "16.0 MiB"});
  expect_error(ErrorKind::file, {"line 1", "no template of chats"}, [&] {
    read(R"({"messages": [{"role": "assistant", "content": "x"}]})", {}, false);
  });
}

}  // namespace
}  // namespace spool::testing
