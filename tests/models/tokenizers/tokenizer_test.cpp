// runs: threads
// Tokenizers: the tokens of a text, and its text restored byte for byte.

#include "spool/models/tokenizers/parallel_encode.h"
#include "spool/runtime/hash.h"
#include "tests/models/tokenizers/tokenizer_testing.h"
#include "tests/runtime/source_folder.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

namespace fs = std::filesystem;

// The merges published with the model, if they are present.
const fs::path published = source_folder() / "../shared/data/gpt2/merges.txt";
const fs::path shakespeare = source_folder() / "../shared/data/tinyshakespeare.txt";

std::vector<std::string> texts_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> all;
  for (const int32_t token : encode(tokenizer, text)) all.push_back(tokenizer.decode({&token, 1}));
  return all;
}

// The hash that reference/make_tokenizer_reference.py prints: two bytes of each token.
uint64_t hash_of(std::span<const int32_t> tokens) {
  Fnv1a hash;
  for (const int32_t token : tokens) {
    hash.add(static_cast<uint64_t>(token & 255));
    hash.add(static_cast<uint64_t>(token >> 8 & 255));
  }
  return hash.state();
}

TEST(ByteTokenizer, DecodesToTheSameBytes) {
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
  expect_error(ErrorKind::invalid, {"token 256"}, [&] { tokenizer->decode(padding); });
}

TEST(Gpt2Tokenizer, JoinsPairsInTheOrderOfTheMerges) {
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

TEST(Gpt2Tokenizer, DecodesTheEndOfTextButDoesNotEncodeIt) {
  const auto tokenizer = small_tokenizer();
  const std::vector<int32_t> end = {*tokenizer->end_of_text()};
  EXPECT_EQ(tokenizer->decode(end), "<|endoftext|>");
  EXPECT_GT(encode(*tokenizer, "<|endoftext|>").size(), 1u);
  const std::vector<int32_t> beyond = {266};
  expect_error(ErrorKind::invalid, {"token 266"}, [&] { tokenizer->decode(beyond); });
}

// Encodes by scanning all pairs for each merge in turn.
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

TEST(BytePairEncoding, EncodesShortAndLongPiecesByTheSameRule) {
  std::mt19937 random(1);
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(255 - i));
  BytePairEncoding encoding(bytes);
  while (encoding.size() < 256 + 60) {
    // Four letters, so that merges overlap.
    const auto pick = [&] {
      const auto n = static_cast<int32_t>(random() % static_cast<uint32_t>(encoding.size() - 252));
      return n < 4 ? encoding.of_byte("abcd"[n]) : 252 + n;
    };
    error_of([&] { encoding.add_merge({pick(), pick()}); });  // some are there already
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
}

TEST(BytePairEncoding, RefusesMergesOfUnknownTokensAndTheSameTwice) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  BytePairEncoding encoding(bytes);
  encoding.add_merge({'a', 'b'});
  expect_error(ErrorKind::invalid, {"9999"}, [&] { encoding.add_merge({0, 9999}); });
  expect_error(ErrorKind::invalid, {"97", "98"}, [&] { encoding.add_merge({'a', 'b'}); });
}

TEST(Gpt2Tokenizer, DecodesToTheSameBytes) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_bytes(random, random() % 200);
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
}

TEST(Gpt2Tokenizer, GivesTheSameTokensForTextCutAtItsBoundaries) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(3);
  int cuts = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_bytes(random, 60);
    const size_t window = 8 + random() % 40;
    const size_t cut = tokenizer->boundary(std::string_view(text).substr(0, window));
    ASSERT_GT(cut, 0u);
    ASSERT_LE(cut, window);
    // The boundary cuts through a piece that fills the window.
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

TEST(Gpt2Tokenizer, GivesTheSameTokensForAnyNumberOfThreads) {
  const auto tokenizer = small_tokenizer();
  std::mt19937 random(4);
  // More than one thread has at a time.
  const size_t half = nightly() ? 9 << 20 : finds_races() ? 5 << 18 : 5 << 20;
  const std::string text =
      random_bytes(random, half) + std::string(half, 'a') + random_bytes(random, 1000);
  const std::vector<int32_t> whole = encode(*tokenizer, text);
  const TemporaryDirectory d;
  const InputFile file(d.file("text", text));
  const std::vector<int> few{1, 3}, many{1, 2, 3};
  for (const int threads : finds_races() ? few : many) {
    std::vector<int32_t> parts;
    uint64_t last = 0;
    encode_text(*tokenizer, file, threads, [&](std::span<const int32_t> some, uint64_t done) {
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
TEST(Gpt2Tokenizer, GivesTheSameTokensForTextThatEndsWithABlock) {
  const auto tokenizer = small_tokenizer();
  const size_t block = size_t{1} << 20;
  const TemporaryDirectory d;
  // One thread has no races.
  const std::vector<size_t> one{block + 1},
      sizes{block - 1, block, block + 1, 2 * block, 2 * block + 1, 4 * block};
  for (const size_t size : finds_races() ? one : sizes) {
    std::string text;
    while (text.size() < size) text += "the then hat ";
    text.resize(size);
    std::vector<int32_t> parts;
    encode_text(*tokenizer, InputFile(d.file("text", text)), /*threads=*/1,
                [&](std::span<const int32_t> some, uint64_t) {
                  parts.insert(parts.end(), some.begin(), some.end());
                });
    ASSERT_TRUE(parts == encode(*tokenizer, text)) << size;
  }
}

TEST(Gpt2Tokenizer, GivesTheTokensOfThePublishedOne) {
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
  EXPECT_EQ(hash_of(std::span(tokens).first(10000)), 0x8f59a12f017ccc5du);
  EXPECT_TRUE(tokenizer->decode(tokens) == text);
}

}  // namespace
}  // namespace spool::testing
