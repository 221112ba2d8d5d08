// Tokenizers from their files: merges.txt, vocab.json and llm.c's tokenizer.

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/models/tokenizers/tokenizer_testing.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

void put(std::string& bytes, std::initializer_list<int32_t> words) {
  for (const int32_t word : words) bytes.append(reinterpret_cast<const char*>(&word), 4);
}

std::string llmc_file(std::initializer_list<int32_t> header, const std::string& rest) {
  std::string bytes;
  put(bytes, header);
  bytes.resize(1024);
  return bytes + rest;
}

std::string tokens_of_llmc(const Gpt2Tokenizer& t) {
  std::string bytes;
  for (int32_t i = 0; i < t.vocabulary(); ++i) {
    const std::string text = t.decode({&i, 1});
    bytes.push_back(static_cast<char>(text.size()));
    bytes += text;
  }
  return bytes;
}

// Numbered as by Hugging Face's trainer, which starts with special tokens.
TEST(VocabularyFile, GivesTheIdsOfTokens) {
  const TemporaryDirectory d, written;
  const auto plain = small_tokenizer();
  write_tokenizer_files(d.path(), *plain);
  nlohmann::json ids = nlohmann::json::parse(content_of(d.path() / "vocab.json"));
  EXPECT_EQ(ids["<|endoftext|>"], 265);
  for (auto& [text, id] : ids.items()) id = text == "<|endoftext|>" ? 0 : id.get<int>() + 2;
  ids["<pad>"] = 1;
  d.file("vocab.json", ids.dump());
  const auto tokenizer = read_gpt2_tokenizer(d.path() / "merges.txt");
  EXPECT_EQ(tokenizer->vocabulary(), 267);
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  const std::string text = "the aaa\xff's 12";
  std::vector<int32_t> expected = encode(*plain, text);
  for (int32_t& token : expected) token += 2;
  EXPECT_EQ(encode(*tokenizer, text), expected);
  EXPECT_EQ(tokenizer->decode(expected), text);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{1, 0}), "<pad><|endoftext|>");
  EXPECT_FALSE(*tokenizer == *plain);
  write_tokenizer_files(written.path(), *tokenizer);
  EXPECT_TRUE(*read_gpt2_tokenizer(written.path() / "merges.txt") == *tokenizer);
}

TEST(VocabularyFile, RefusesIdsThatDoNotFitTheMerges) {
  const TemporaryDirectory d;
  write_tokenizer_files(d.path(), *small_tokenizer());
  const nlohmann::json good = nlohmann::json::parse(content_of(d.path() / "vocab.json"));
  using Change = std::function<void(nlohmann::json&)>;
  const auto read_changed = [&](const Change& change) {
    nlohmann::json ids = good;
    change(ids);
    d.file("vocab.json", ids.dump());
    read_gpt2_tokenizer(d.path() / "merges.txt");
  };
  const auto refused = [&](std::string_view words, const Change& change) {
    expect_error(ErrorKind::file, {"vocab.json: ", words}, [&] { read_changed(change); });
  };
  EXPECT_NO_THROW(read_changed([](auto&) {}));
  EXPECT_NO_THROW(read_changed([](auto& j) { j.erase("<|endoftext|>"); }));  // not all have it
  refused("another token", [](auto& j) { j["the"] = 256; });
  refused("from 0 to 265", [](auto& j) { j["the"] = 266; });
  refused("field the: -1 is not", [](auto& j) { j["the"] = -1; });
  refused("field the: \"x\" is not", [](auto& j) { j["the"] = "x"; });
  refused("has no id for \"the\"", [](auto& j) {
    j["then"] = j["the"];
    j.erase("the");
  });
  refused("not a JSON object", [](auto& j) { j = nlohmann::json::array(); });
  refused("nested", [](auto& j) { j["the"] = {{"a", 1}}; });
}

TEST(LlmcTokenizer, GivesTheTokensOfItsMerges) {
  const TemporaryDirectory d;
  const auto tokenizer = small_tokenizer();
  const std::string file = llmc_file({20240328, 2, 266, 265}, tokens_of_llmc(*tokenizer));
  const auto other = read_gpt2_tokenizer(d.file("t.bin", file));
  EXPECT_EQ(other->vocabulary(), 266);
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_bytes(random, 100);
    ASSERT_EQ(encode(*other, text), encode(*tokenizer, text));
  }
  // Writes its merges unchanged.
  write_tokenizer_files(d.path(), *other);
  EXPECT_EQ(content_of(d.path() / "merges.txt"), small_merges);
}

TEST(LlmcTokenizer, RefusesEachFieldThatIsWrong) {
  const TemporaryDirectory d;
  const std::string tokens = tokens_of_llmc(*small_tokenizer());
  const auto read = [&](const std::string& content) {
    read_llmc_tokenizer(d.file("t.bin", content));
  };
  const auto refused = [&](const std::string& content, std::string_view words) {
    expect_error(ErrorKind::file, {"t.bin: ", words}, [&] { read(content); });
  };
  const std::string good = llmc_file({20240328, 2, 266, 265}, tokens);
  EXPECT_NO_THROW(read(good));
  refused(llmc_file({20240326, 2, 266, 265}, tokens), "magic");
  refused(llmc_file({20240328, 1, 266, 265}, tokens), "version");
  for (const int32_t count : {-1, 0, 257, 1 << 30, INT32_MAX, INT32_MIN})
    refused(llmc_file({20240328, 2, count, 265}, tokens), "vocabulary");
  for (const int32_t end : {-1, 0, 266})
    refused(llmc_file({20240328, 2, 266, end}, tokens), "end of text");
  refused(llmc_file({20240328, 2, 267, 266}, tokens), "ends before token 266");
  refused(good + "x", "after its last token");
  std::string twice = tokens;
  twice[1] = twice[3];  // a byte comes twice
  refused(llmc_file({20240328, 2, 266, 265}, twice), "token 1 is not one of");
  std::string three = tokens;
  three.replace(512, 3, "\3zzz");  // for "th"
  refused(llmc_file({20240328, 2, 266, 265}, three), "token 256 joins 3");
  for (size_t size = 0; size < good.size(); ++size) refused(good.substr(0, size), "");
}

TEST(Merges, AreRefusedByTheLineThatIsWrong) {
  const TemporaryDirectory d;
  const auto read = [&](const std::string& content) { read_merges(d.file("merges.txt", content)); };
  const auto refused = [&](const std::string& content, std::string_view words) {
    expect_error(ErrorKind::file, {"merges.txt: ", words}, [&] { read(content); });
  };
  EXPECT_NO_THROW(read("a b\r\nab c\n"));
  refused("", "no merges");
  refused("#version: 0.2\n", "no merges");
  refused("a b\nc\n", "line 2 is not two tokens");
  refused("a b c\n", "line 1 is not two tokens");
  refused("a b\nab \n", "line 2");
  refused("a b\n b\n", "line 2");
  refused("a b\nac b\n", "line 2 joins a token");
  refused("a b\na b\n", "line 2 makes a token that an earlier line makes");
  refused("a b\nab c\nb c\na bc\n", "line 4 makes a token that an earlier line makes");
  refused("a \xe4\xb8\xad\n", "alphabet");
  refused("a \xff\n", "alphabet");
  refused("a \xc4\n", "alphabet");
  refused(std::string("a \0\n", 4), "alphabet");
  expect_error(ErrorKind::file, {"No such file"}, [&] { read_merges(d.path() / "no"); });
}

}  // namespace
}  // namespace spool::testing
