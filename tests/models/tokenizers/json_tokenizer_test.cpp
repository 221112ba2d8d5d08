// runs: threads, night
// tokenizer.json: the ids and texts are those of Hugging Face's library, which made the files in
// tests/reference/tokenizers (make_tokenizer_json_reference.py).

#include "spool/models/tokenizers/json_tokenizer.h"

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "spool/models/tokenizers/parallel_encode.h"
#include "spool/models/tokenizers/utf8.h"
#include "tests/models/tokenizers/tokenizer_testing.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

const fs::path reference = source_folder() / "tests/reference/tokenizers";
constexpr const char* styles[] = {
    "gpt2", "llama3",           "qwen2",           "smollm2",        "sentencepiece",
    "nfkc", "metaspace_always", "metaspace_first", "metaspace_never"};

std::unique_ptr<JsonTokenizer> open_style(const std::string& style) {
  return read_tokenizer_json(reference / (style + ".json"));
}

nlohmann::json texts_of_style(const fs::path& file) {
  return nlohmann::json::parse(content_of(file));
}

void compare(const JsonTokenizer& tokenizer, const nlohmann::json& cases) {
  for (const auto& [index, c] : cases.items()) {
    const std::string text = c.at(0), decoded = c.at(2);
    const Ids ids = c.at(1);
    ASSERT_EQ(encode(tokenizer, text), ids) << index << ": " << text;
    ASSERT_EQ(tokenizer.decode(ids), decoded) << index << ": " << text;
    std::string streamed;
    TextStream stream(tokenizer, TextStream::From::begin);
    for (const int32_t id : ids) {
      const std::string some = stream.add(id);
      EXPECT_EQ(valid_utf8_size(some), some.size()) << index;
      streamed += some;
    }
    ASSERT_EQ(streamed + stream.finish(), decoded) << index << ": " << text;
  }
}

class JsonTokenizerStyle : public ::testing::TestWithParam<const char*> {};

TEST_P(JsonTokenizerStyle, GivesTheTokensAndTextsOfHuggingFaces) {
  if (finds_races()) GTEST_SKIP() << "one thread";
  const std::string style = GetParam();
  const nlohmann::json cases = texts_of_style(reference / (style + ".texts.json"));
  ASSERT_GT(cases.size(), 400u);
  compare(*open_style(style), cases);
}

// Texts written by the script's --random, in a folder that the environment names.
TEST_P(JsonTokenizerStyle, GivesTheTokensOfRandomTextsAtHand) {
  const char* folder = std::getenv("SPOOL_TOKENIZER_TEXTS");
  if (!folder) GTEST_SKIP() << "no random texts at hand";
  const std::string style = GetParam();
  compare(*open_style(style), texts_of_style(fs::path(folder) / (style + ".random.json")));
}

std::string random_text_of(std::mt19937& random, size_t size) {
  constexpr std::string_view parts[] = {"a",
                                        "the",
                                        " ",
                                        " the",
                                        "\n",
                                        "'s",
                                        "'",
                                        "12",
                                        "\xe3\x80\x80",
                                        "\xc2\xa0",
                                        "\xe3",
                                        "<s>",
                                        "<norm>",
                                        "!",
                                        "\xff",
                                        "\t ",
                                        "aa",
                                        "e",
                                        "\xcc\x81",
                                        "\r\n",
                                        "\xe4\xbd\xa0",
                                        "\xe2\x96\x81",
                                        "<|im_end|>\n",
                                        " <tool_call> ",
                                        "<0x0A>",
                                        "\xed\x95\x9c",
                                        "<right>",
                                        "<left>",
                                        "<word>",
                                        "\xe2\x84\xa2",
                                        "\xc2\xbd",
                                        "\xcc\xa3",
                                        "_"};
  std::string text;
  while (text.size() < size) text += parts[random() % std::size(parts)];
  return text;
}

TEST_P(JsonTokenizerStyle, GivesTheSameTokensForTextCutAtItsBoundaries) {
  if (finds_races()) GTEST_SKIP() << "one thread";
  const auto tokenizer = open_style(GetParam());
  std::mt19937 random(3);
  int cuts = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text_of(random, 80);
    const size_t window = 20 + random() % 50;
    const size_t cut = tokenizer->boundary(std::string_view(text).substr(0, window));
    ASSERT_GT(cut, 0u);
    ASSERT_LE(cut, window);
    if (cut + 12 > window) continue;  // no place was found, or a token begins there
    Ids parts = encode(*tokenizer, text.substr(0, cut));
    tokenizer->encode_rest(std::string_view(text).substr(cut), parts);
    ASSERT_EQ(parts, encode(*tokenizer, text))
        << nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << cut
        << " of " << window;
    ++cuts;
  }
  EXPECT_GT(cuts, 1000);
}

// Text with many added tokens and few spaces, which some of the tokens take.
TEST_P(JsonTokenizerStyle, IsCutBetweenAddedTokens) {
  if (finds_races()) GTEST_SKIP() << "one thread";
  constexpr std::string_view parts[] = {"\xe5\xad\x97", "<right>",  "<left>", "<word>",
                                        "<norm>",       "<NORM>",   "<s>",    "\n\n\n\n\n\n",
                                        "</s>",         "e\xcc\x81"};
  const auto tokenizer = open_style(GetParam());
  std::mt19937 random(4);
  int cuts = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    while (text.size() < 90) text += parts[random() % std::size(parts)];
    const size_t window = 30 + random() % 50;
    const size_t cut = tokenizer->boundary(std::string_view(text).substr(0, window));
    ASSERT_GT(cut, 0u);
    Ids ids = encode(*tokenizer, text.substr(0, cut));
    tokenizer->encode_rest(std::string_view(text).substr(cut), ids);
    if (cut + 12 > window && ids != encode(*tokenizer, text)) continue;  // no place was found
    ASSERT_EQ(ids, encode(*tokenizer, text)) << ::testing::PrintToString(text) << cut;
    ++cuts;
  }
  EXPECT_GT(cuts, 1500);
}

TEST_P(JsonTokenizerStyle, GivesTheSameTokensForAnyNumberOfThreads) {
  const auto tokenizer = open_style(GetParam());
  std::mt19937 random(4);
  std::string text;
  const size_t bytes = size_t{5} << (finds_races() ? 18 : 19);  // more than a block
  while (text.size() < bytes) text += random_text_of(random, 60) + " word";
  const Ids whole = encode(*tokenizer, text);
  const TemporaryDirectory d;
  const InputFile file(d.file("text", text));
  const std::vector<int> two{2}, all{1, 2};
  for (const int threads : finds_races() ? two : all) {
    Ids parts;
    encode_text(*tokenizer, file, threads, [&](std::span<const int32_t> some, uint64_t) {
      parts.insert(parts.end(), some.begin(), some.end());
    });
    ASSERT_TRUE(parts == whole) << threads;
  }
}

// The text that encoding and decoding gives back: what the style changes, by the library's rules,
// and its tokens do not restore.
std::string kept_by(const std::string& style, std::string text) {
  using Kind = NormalizerStep::Kind;
  if (style == "qwen2") return unicode_form(Kind::nfc, text);
  if (style == "metaspace_never") return unicode_form(Kind::nfd, text);
  if (style == "metaspace_always") return text.substr(text.starts_with(' ') ? 1 : 0);
  if (style == "nfkc") return unicode_form(Kind::lowercase, unicode_form(Kind::nfkc, text));
  if (style == "metaspace_first") {
    text = unicode_form(Kind::nfkc, text);
    return text.substr(text.starts_with(' ') ? 1 : 0);
  }
  return text;
}

// Bytes that are not UTF-8 are restored, too.
TEST_P(JsonTokenizerStyle, DecodesToTheSameBytes) {
  if (finds_races()) GTEST_SKIP() << "one thread";
  const std::string style = GetParam();
  const auto tokenizer = open_style(style);
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_bytes(random, random() % 200);
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), kept_by(style, text));
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, JsonTokenizerStyle, ::testing::ValuesIn(styles),
                         [](const auto& style) { return std::string(style.param); });

TEST(JsonTokenizer, KnowsItsSpecialTokens) {
  const auto llama = open_style("llama3"), plain = open_style("qwen2");
  const auto sentencepiece = open_style("sentencepiece");
  EXPECT_EQ(llama->vocabulary(), 706);
  EXPECT_EQ(llama->begin_of_text(), (Ids{701}));
  EXPECT_EQ(start_of_text(*llama), (Ids{701}));
  EXPECT_EQ(llama->end_of_text(), 700);
  EXPECT_EQ(llama->token_id("<|im_end|>"), 702);
  EXPECT_EQ(llama->token_id("<tool_call>"), 704);
  EXPECT_FALSE(llama->token_id("no"));
  EXPECT_EQ(llama->special_ids(), (Ids{700, 701, 702, 703}));
  EXPECT_EQ(plain->begin_of_text(), Ids{});
  EXPECT_EQ(start_of_text(*plain), (Ids{700}));
  EXPECT_EQ(sentencepiece->begin_of_text(), (Ids{1}));
  EXPECT_EQ(sentencepiece->end_of_text(), 2);
  EXPECT_EQ(encode(*sentencepiece, "</s>\n").at(0), 2);
}

TEST(JsonTokenizer, AddsMissingTokensAroundADocument) {
  const TemporaryDirectory d;
  const auto tokens_of = [&](const JsonTokenizer& t, const std::string& text) {
    Ids all;
    encode_document(
        t, InputFile(d.file("text", text)), 1,
        [&](std::span<const int32_t> s, uint64_t) { all.insert(all.end(), s.begin(), s.end()); });
    return all;
  };
  for (const char* style : {"metaspace_always", "nfkc", "llama3", "gpt2"}) {
    const auto t = open_style(style);
    const Ids begin = t->begin_of_text(), after = t->after_text();
    EXPECT_EQ(after.size(),
              style == std::string_view("gpt2") || style == std::string_view("llama3") ? 0u : 1u);
    Ids wanted = begin;
    t->encode("the end", wanted);
    wanted.insert(wanted.end(), after.begin(), after.end());
    EXPECT_EQ(tokens_of(*t, "the end"), wanted);
    if (begin.empty()) continue;
    const std::string spelt = t->decode_rest(begin) + "the end";
    Ids again;
    t->encode(spelt, again);
    again.insert(again.end(), after.begin(), after.end());
    EXPECT_EQ(tokens_of(*t, spelt), again);
    EXPECT_EQ(std::ranges::count(again, begin[0]), 1);
  }
}

TEST(JsonTokenizer, IsRefusedATokenThatTheModelLacks) {
  const auto t = open_style("llama3");
  EXPECT_EQ(start_of_text(*t, 706), (Ids{701}));
  EXPECT_EQ(start_of_text(*t, 701), (Ids{700}));
  EXPECT_LT(start_of_text(*t, 700).at(0), 700);
  const Ids ids = encode(*t, "ab <tool_call>");
  EXPECT_NO_THROW(check_rows(*t, ids, 705, "x"));
  expect_error(ErrorKind::invalid, {"x: has the token \"<tool_call>\" near byte 8", "number 704"},
               [&] { check_rows(*t, ids, 704, "x", 5); });
}

TEST(JsonTokenizer, DropsTheFirstBlankOfATextOnly) {
  const auto t = open_style("sentencepiece");
  const Ids ids = encode(*t, "the the");
  EXPECT_EQ(t->decode(ids), "the the");
  EXPECT_EQ(t->decode_rest(ids), " the the");
  std::string begun, following;
  TextStream first(*t, TextStream::From::begin), second(*t, TextStream::From::middle);
  for (const int32_t id : ids) begun += first.add(id), following += second.add(id);
  EXPECT_EQ(begun, "the the");
  EXPECT_EQ(following, " the the");
}

TEST(JsonTokenizer, HasAConfigurationByWhichTransformersReadsIt) {
  const TemporaryDirectory d, out;
  d.file("tokenizer.json", content_of(reference / "llama3.json"));
  read_tokenizer_json(d.path() / "tokenizer.json")->write_files(out.path());
  const auto config = nlohmann::json::parse(content_of(out.path() / "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["bos_token"], "<|im_start|>");
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
}

TEST(TextStream, HoldsBytesBackUntilTheyAreACharacter) {
  const auto t = make_byte_tokenizer();
  TextStream stream(*t, TextStream::From::begin);
  EXPECT_EQ(stream.add('a'), "a");
  EXPECT_EQ(stream.add(0xe4), "");
  EXPECT_EQ(stream.add(0xbd), "");
  EXPECT_EQ(stream.add(0xa0), "\xe4\xbd\xa0");
  EXPECT_EQ(stream.add(0xff), "\xff");
  EXPECT_EQ(stream.add(0xe4), "");
  EXPECT_EQ(stream.finish(), "\xe4");
}

TEST(Utf8, ATextIsCutToWholeCharacters) {
  const std::string euro = "\xe2\x82\xac";
  for (const auto& [text, whole] :
       std::map<std::string, std::string>{{"", ""},
                                          {"\x82\xac", ""},
                                          {"a", "a"},
                                          {euro, euro},
                                          {"\x82\xac" + euro + "\xe2\x82", euro},
                                          {"\xac"
                                           "ab\xff"
                                           "c\xe2",
                                           "ab\xff"
                                           "c"},
                                          {"\x82\x82\x82\x82"
                                           "b",
                                           "\x82"
                                           "b"}}) {
    EXPECT_EQ(from_character_to_character(text), whole);
  }
}

TEST(JsonTokenizer, WritesItsFilesByteForByte) {
  const TemporaryDirectory d, out;
  const std::string json = content_of(reference / "qwen2.json");
  d.file("tokenizer.json", json);
  d.file("tokenizer_config.json", "{ \"eos_token\": {\"content\": \"<|im_end|>\"} }\n");
  d.file("chat_template.jinja", "{{ messages }}");
  const auto tokenizer = read_tokenizer_json(d.path() / "tokenizer.json");
  EXPECT_EQ(tokenizer->end_of_text(), tokenizer->token_id("<|endoftext|>"));
  tokenizer->write_files(out.path());
  EXPECT_EQ(names_in(out.path()), names_in(d.path()));
  for (const std::string& name : names_in(out.path())) {
    EXPECT_EQ(content_of(out.path() / name), content_of(d.path() / name));
  }
  EXPECT_TRUE(*read_tokenizer_json(out.path() / "tokenizer.json") == *tokenizer);
  EXPECT_FALSE(*open_style("llama3") == *tokenizer);
}

}  // namespace
}  // namespace spool::testing
