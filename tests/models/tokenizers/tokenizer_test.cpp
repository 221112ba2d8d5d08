// Tokenizers: what they make of text, and that it comes back byte for byte.

#include <nlohmann/json.hpp>
#include <random>

#include "spool/models/tokenizers/gpt2_tokenizer.h"
#include "spool/models/tokenizers/parallel_encode.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/testing.h"

namespace spool {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::content_of;
using testing::error_of;
using testing::TemporaryDirectory;

// As published with the model, where it is at hand.
const fs::path published = fs::path(SPOOL_SOURCE_DIR) / "../shared/data/gpt2/merges.txt";
const fs::path shakespeare = fs::path(SPOOL_SOURCE_DIR) / "../shared/data/tinyshakespeare.txt";

// A few merges, with joins of joins; \xc4\xa0 is how a blank is spelt.
const std::string small_merges =
    "#version: 0.2\nt h\nth e\n\xc4\xa0 the\na a\naa aa\n\xc4\xa0 a\n' s\n1 2\n\xc3\xa3 \xc4\xa3\n";

std::unique_ptr<Gpt2Tokenizer> small_tokenizer() {
  const TemporaryDirectory d;
  return read_gpt2_tokenizer(d.file("merges.txt", small_merges));
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

std::vector<std::string> texts_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> all;
  for (const int32_t token : encode(tokenizer, text)) all.push_back(tokenizer.decode({&token, 1}));
  return all;
}

std::string random_bytes(std::mt19937& random, size_t size) {
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
                                        "\xc4\xa0",
                                        "\xf0\x9f\x99\x82",
                                        "!",
                                        "\xff",
                                        "\xe2\x80\x83",
                                        "\x80",
                                        "\xed\xa0\x80",
                                        "\t ",
                                        "aa"};
  std::string text;
  while (text.size() < size) text += parts[random() % std::size(parts)];
  return text;
}

uint64_t fnv1a(std::span<const int32_t> tokens) {
  uint64_t hash = 14695981039346656037u;
  for (const int32_t token : tokens) {
    for (int byte = 0; byte < 2; ++byte) {
      hash = (hash ^ (static_cast<uint64_t>(token) >> (8 * byte) & 255)) * 1099511628211u;
    }
  }
  return hash;
}

TEST(ByteTokenizer, BytesComeBackAsTheyWere) {
  const auto tokenizer = make_byte_tokenizer();
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  std::vector<int32_t> tokens = {7};
  tokenizer->encode(text, tokens);
  ASSERT_EQ(tokens.size(), 257u);
  EXPECT_EQ(tokens[0], 7);
  EXPECT_EQ(tokens[256], 255);
  EXPECT_EQ(tokenizer->decode(std::span(tokens).subspan(1)), text);
  EXPECT_EQ(tokenizer->vocabulary(), 256);
  EXPECT_FALSE(tokenizer->end_of_text());
  const std::vector<int32_t> padding = {65, 256};
  EXPECT_TRUE(contains(error_of([&] { tokenizer->decode(padding); }), "token 256"));
}

TEST(Gpt2Tokenizer, JoinsWhatWasLearntFirst) {
  const auto tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer->vocabulary(), 256 + 9 + 1);
  EXPECT_EQ(tokenizer->end_of_text(), 265);
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts_of(*tokenizer, "the the"), (Texts{"the", " the"}));
  EXPECT_EQ(texts_of(*tokenizer, "aaaaaaa"), (Texts{"aaaa", "aa", "a"}));
  EXPECT_EQ(texts_of(*tokenizer, "tthe's"), (Texts{"t", "the", "'s"}));
  EXPECT_EQ(texts_of(*tokenizer, "   a"), (Texts{" ", " ", " a"}));
  EXPECT_EQ(texts_of(*tokenizer, "a \n a"), (Texts{"a", " ", "\n", " a"}));
  EXPECT_EQ(texts_of(*tokenizer, "12a"), (Texts{"12", "a"}));
  EXPECT_EQ(encode(*tokenizer, "!"), std::vector<int32_t>{0});
  EXPECT_EQ(encode(*tokenizer, std::string(1, '\0')), std::vector<int32_t>{188});
  EXPECT_EQ(encode(*tokenizer, " "), std::vector<int32_t>{220});
  EXPECT_EQ(encode(*tokenizer, ""), std::vector<int32_t>{});
}

TEST(Gpt2Tokenizer, TheEndOfTextIsWrittenOutAndNotRead) {
  const auto tokenizer = small_tokenizer();
  const std::vector<int32_t> end = {*tokenizer->end_of_text()};
  EXPECT_EQ(tokenizer->decode(end), "<|endoftext|>");
  EXPECT_GT(encode(*tokenizer, "<|endoftext|>").size(), 1u);
  const std::vector<int32_t> beyond = {266};
  EXPECT_TRUE(contains(error_of([&] { tokenizer->decode(beyond); }), "token 266"));
}

// By going through all pairs, again and again.
std::vector<int32_t> plain_encode(const BytePairEncoding& e, std::string_view piece) {
  std::vector<int32_t> parts;
  for (const char byte : piece) parts.push_back(e.of_byte(byte));
  for (int32_t token = BytePairEncoding::byte_count; token < e.size(); ++token) {
    const auto [left, right] = e.merge(token);
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      if (parts[i] != left || parts[i + 1] != right) continue;
      parts[i] = token;
      parts.erase(parts.begin() + static_cast<int64_t>(i) + 1);
    }
  }
  return parts;
}

TEST(BytePairEncoding, ShortAndLongPiecesGoByTheSameRule) {
  std::mt19937 random(1);
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(255 - i));
  BytePairEncoding encoding(bytes);
  while (encoding.size() < 256 + 60) {
    // Of four letters, so that merges overlap.
    const auto pick = [&] {
      const auto n = static_cast<int32_t>(random() % static_cast<uint32_t>(encoding.size() - 252));
      return n < 4 ? encoding.of_byte("abcd"[n]) : 252 + n;
    };
    error_of([&] { encoding.add_merge({pick(), pick()}); });
  }
  for (const size_t size : {1, 2, 3, 10, 63, 64, 65, 200, 3000}) {
    for (int i = 0; i < 20; ++i) {
      std::string piece;
      while (piece.size() < size) piece.push_back("abcdd"[random() % 5]);
      std::vector<int32_t> tokens;
      encoding.encode(piece, tokens);
      ASSERT_EQ(tokens, plain_encode(encoding, piece)) << piece;
    }
  }
  EXPECT_NE(error_of([&] { encoding.add_merge({0, 9999}); }), "");
  EXPECT_NE(error_of([&] { encoding.add_merge(encoding.merge(256)); }), "");
}

TEST(Gpt2Tokenizer, AnyBytesComeBackAsTheyWere) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_bytes(random, random() % 200);
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
}

TEST(Gpt2Tokenizer, CutAtItsBoundariesTextHasTheSameTokens) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(3);
  int cuts = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_bytes(random, 60);
    const size_t window = 8 + random() % 40;
    const size_t cut = tokenizer->boundary(std::string_view(text).substr(0, window));
    ASSERT_GT(cut, 0u);
    ASSERT_LE(cut, window);
    // A piece that fills the window is cut through.
    Gpt2Pieces pieces;
    Gpt2Pieces::Walk walk(pieces, text);
    if (walk.next().size() + 6 >= window) continue;
    std::vector<int32_t> parts = encode(*tokenizer, text.substr(0, cut));
    tokenizer->encode(std::string_view(text).substr(cut), parts);
    ASSERT_EQ(parts, encode(*tokenizer, text)) << cut << " of " << window;
    ++cuts;
  }
  EXPECT_GT(cuts, 1000);
}

TEST(Gpt2Tokenizer, TextOfAnySizeAndNumberOfThreads) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(4);
  const std::string text =
      random_bytes(random, 5 << 18) + std::string(5 << 18, 'a') + random_bytes(random, 1000);
  const std::vector<int32_t> whole = encode(*tokenizer, text);
  for (const int threads : {1, 3}) {
    std::vector<int32_t> parts;
    size_t last = 0;
    encode_text(*tokenizer, text, threads, [&](std::span<const int32_t> some, size_t done) {
      parts.insert(parts.end(), some.begin(), some.end());
      EXPECT_GT(done, last);
      last = done;
    });
    EXPECT_EQ(last, text.size());
    ASSERT_TRUE(parts == whole) << threads;
  }
  EXPECT_TRUE(tokenizer->decode(whole) == text);
}

// The ids, and the hash of the first 10,000 of tiny Shakespeare, are those of tiktoken 0.14.0 with
// the published merges; see reference/make_tokenizer_reference.py.
TEST(Gpt2Tokenizer, IsThePublishedOne) {
  if (!fs::exists(published) || !fs::exists(shakespeare)) GTEST_SKIP() << "no merges at hand";
  const auto tokenizer = read_gpt2_tokenizer(published);
  EXPECT_EQ(tokenizer->vocabulary(), 50257);
  EXPECT_EQ(encode(*tokenizer, "Hello world"), (std::vector<int32_t>{15496, 995}));
  EXPECT_EQ(
      encode(*tokenizer, "It's  \xe4\xb8\xad\xe6\x96\x87\xe3\x80\x82\n\n 'll 12\xc2\xbd\xc2\xa0x"),
      (std::vector<int32_t>{1026, 338, 220, 220, 40792, 23877, 229, 16764, 628, 705, 297, 1105,
                            23141, 1849, 87}));
  const std::string text = content_of(shakespeare);
  const std::vector<int32_t> tokens = encode(*tokenizer, text);
  EXPECT_EQ(tokens.size(), 338025u);
  EXPECT_EQ(fnv1a(std::span(tokens).first(10000)), 0x8f59a12f017ccc5du);
  EXPECT_TRUE(tokenizer->decode(tokens) == text);
}

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

// As Hugging Face's trainer numbers them: special tokens first.
TEST(Gpt2Tokenizer, IdsAreThoseOfTheVocabulary) {
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

TEST(Gpt2Tokenizer, AVocabularyThatDoesNotFitIsASentence) {
  const TemporaryDirectory d;
  write_tokenizer_files(d.path(), *small_tokenizer());
  const nlohmann::json good = nlohmann::json::parse(content_of(d.path() / "vocab.json"));
  const auto error = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json ids = good;
    change(ids);
    d.file("vocab.json", ids.dump());
    return error_of([&] { read_gpt2_tokenizer(d.path() / "merges.txt"); });
  };
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_EQ(error([](auto& j) { j.erase("<|endoftext|>"); }), "");  // not every one has it
  EXPECT_TRUE(contains(error([](auto& j) { j["the"] = 256; }), "another token, too"));
  EXPECT_TRUE(contains(error([](auto& j) { j["the"] = 266; }), "from 0 to 265"));
  EXPECT_TRUE(contains(error([](auto& j) { j["the"] = -1; }), "field the: -1 is not"));
  EXPECT_TRUE(contains(error([](auto& j) { j["the"] = "x"; }), "field the: \"x\" is not"));
  EXPECT_TRUE(contains(error([](auto& j) {
                         j["then"] = j["the"];
                         j.erase("the");
                       }),
                       "has no id for \"the\""));
  EXPECT_TRUE(contains(error([](auto& j) { j = nlohmann::json::array(); }), "not a JSON object"));
  EXPECT_TRUE(contains(error([](auto& j) { j["the"] = {{"a", 1}}; }), "nested"));
}

TEST(LlmcTokenizer, MakesTheSameTokens) {
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
  // And what is written of it is the merges it came from.
  write_tokenizer_files(d.path(), *other);
  EXPECT_EQ(content_of(d.path() / "merges.txt"), small_merges);
}

TEST(LlmcTokenizer, EachFieldWrongInTurn) {
  const TemporaryDirectory d;
  const std::string tokens = tokens_of_llmc(*small_tokenizer());
  const auto error = [&](const std::string& content) {
    return error_of([&] { read_llmc_tokenizer(d.file("t.bin", content)); });
  };
  const std::string good = llmc_file({20240328, 2, 266, 265}, tokens);
  EXPECT_EQ(error(good), "");
  EXPECT_TRUE(contains(error(llmc_file({20240326, 2, 266, 265}, tokens)), "magic"));
  EXPECT_TRUE(contains(error(llmc_file({20240328, 1, 266, 265}, tokens)), "version"));
  for (const int32_t count : {-1, 0, 257, 1 << 30, INT32_MAX, INT32_MIN}) {
    EXPECT_TRUE(contains(error(llmc_file({20240328, 2, count, 265}, tokens)), "vocabulary"));
  }
  for (const int32_t end : {-1, 0, 266}) {
    EXPECT_TRUE(contains(error(llmc_file({20240328, 2, 266, end}, tokens)), "end of text"));
  }
  EXPECT_TRUE(contains(error(llmc_file({20240328, 2, 267, 266}, tokens)), "ends before token 266"));
  EXPECT_TRUE(contains(error(good + "x"), "after its last token"));
  std::string twice = tokens;
  twice[1] = twice[3];  // a byte comes twice
  EXPECT_TRUE(contains(error(llmc_file({20240328, 2, 266, 265}, twice)), "token 1 is not one of"));
  std::string three = tokens;
  three.replace(512, 3, "\3zzz");  // for "th"
  EXPECT_TRUE(contains(error(llmc_file({20240328, 2, 266, 265}, three)), "token 256 joins 3"));
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_TRUE(contains(error(good.substr(0, size)), "t.bin: ")) << size;
  }
}

TEST(Merges, EachLineWrongInTurn) {
  const TemporaryDirectory d;
  const auto error = [&](const std::string& content) {
    return error_of([&] { read_merges(d.file("merges.txt", content)); });
  };
  EXPECT_EQ(error("a b\r\nab c\n"), "");
  EXPECT_TRUE(contains(error(""), "no merges"));
  EXPECT_TRUE(contains(error("#version: 0.2\n"), "no merges"));
  EXPECT_TRUE(contains(error("a b\nc\n"), "line 2 is not two tokens"));
  EXPECT_TRUE(contains(error("a b c\n"), "line 1 is not two tokens"));
  EXPECT_TRUE(contains(error("a b\nab \n"), "line 2"));
  EXPECT_TRUE(contains(error("a b\n b\n"), "line 2"));
  EXPECT_TRUE(contains(error("a b\nac b\n"), "line 2 joins a token"));
  EXPECT_TRUE(contains(error("a b\na b\n"), "line 2 makes a token that an earlier line makes"));
  EXPECT_TRUE(
      contains(error("a b\nab c\nb c\na bc\n"), "line 4 makes a token that an earlier line makes"));
  EXPECT_TRUE(contains(error("a \xe4\xb8\xad\n"), "alphabet"));
  EXPECT_TRUE(contains(error("a \xff\n"), "alphabet"));
  EXPECT_TRUE(contains(error("a \xc4\n"), "alphabet"));
  EXPECT_TRUE(contains(error(std::string("a \0\n", 4)), "alphabet"));
  EXPECT_TRUE(contains(error_of([&] { read_merges(d.path() / "no"); }), "No such file"));
}

}  // namespace
}  // namespace spool
