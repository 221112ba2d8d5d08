// Embeddings with a part of the weight's rows on the cpu, against those with all of them.

#include "tests/kernels/embedding_part_testing.h"

namespace spool::testing {
namespace {

// Of each token its part has the row, and the others zeros, or its position; so the rows of all
// parts together are those of the whole, to the bit.
TEST(EmbeddingPart, ATokenOfAnotherPartHasZeros) {
  CpuStream stream(64 << 20, 2);
  for (EmbeddingInParts c : embeddings_in_parts) {
    for (const DType t : floating) {
      c.type = t;
      const EmbeddingSample s(c, stream);
      const Embedded whole = embedded(s, {}, c.all(), stream);
      const std::vector<Embedded> parts = embedded_parts(s, stream);
      const Numbers positions = values(s.positions);
      int64_t first = 0;
      for (size_t p = 0; p < parts.size(); ++p) {
        const int64_t end = first + c.rows[p];
        for (size_t i = 0; i < whole.plain.size(); ++i) {
          const auto n = static_cast<int64_t>(i) / c.C, column = static_cast<int64_t>(i) % c.C;
          const int32_t token = s.ids[static_cast<size_t>(n)];
          const bool here = token >= first && token < end;
          ASSERT_EQ(parts[p].plain[i], here ? whole.plain[i] : 0);
          const double position = at(positions, (2 + n % c.T) * c.C + column);
          ASSERT_EQ(parts[p].placed[i], here ? whole.placed[i] : position);
        }
        first = end;
      }
    }
  }
}

TEST(EmbeddingPart, ItsGradientIsThatOfItsRows) {
  CpuStream stream(64 << 20, 2);
  for (EmbeddingInParts c : embeddings_in_parts) {
    for (const DType t : floating) {
      c.type = t;
      const EmbeddingSample s(c, stream);
      const Embedded whole = embedded(s, {}, c.all(), stream);
      Numbers dweight;
      for (size_t p = 0; const Embedded& part : embedded_parts(s, stream)) {
        const auto own = part.dweight.begin() + c.rows[p++] * c.C;
        dweight.insert(dweight.end(), part.dweight.begin(), own);
        EXPECT_EQ(part.dpositions, whole.dpositions);
      }
      const Numbers set(whole.dweight.begin(), whole.dweight.begin() + c.all() * c.C);
      EXPECT_EQ(dweight, set);
    }
  }
}

// What is added to keeps the rows of tokens that are another part's.
TEST(EmbeddingPart, AddsNothingOfAnotherPart) {
  CpuStream stream(1 << 20, 1);
  const Tensor tokens = integers({1, 4}, {0, 5, 2, 5}, stream);
  const Tensor dy = make_tensor<float>({1, 4, 1}, std::vector<float>{1, 2, 4, 8}, stream);
  const Tensor dweight = make_tensor<float>({3, 1}, std::vector<float>{100, 200, 300}, stream);
  launch(EmbeddingBackward{.dweight = add_to(dweight),
                           .dpositions = {},
                           .dy = dy,
                           .tokens = tokens,
                           .part = {.first = 3, .whole = 6}},
         stream);
  EXPECT_EQ(values(dweight), (Numbers{100, 200, 310}));
}

TEST(EmbeddingPart, RefusesATokenOutsideTheWholeVocabulary) {
  for (const int32_t wrong : {-1, 22, 50257}) {
    const std::string words = sentence("token ", wrong, " at position 4 is not in [0, 22)");
    const VocabularyPart part{.first = 11, .whole = 22};
    for (const bool forward : {true, false}) {
      CpuStream stream(64 << 20, 2);
      const Tensor tokens = integers({2, 3}, {0, 1, 10, 21, wrong, 5}, stream);
      const Tensor table = normal({11, 4}, DType::f32, stream, 1);
      const Tensor y = normal({2, 3, 4}, DType::f32, stream, 2);
      expect_error(ErrorKind::invalid, {words}, [&] {
        if (forward) {
          launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = table, .part = part}, stream);
        } else {
          launch(
              EmbeddingBackward{
                  .dweight = table, .dpositions = {}, .dy = y, .tokens = tokens, .part = part},
              stream);
        }
        stream.synchronize();
      });
    }
  }
}

TEST(EmbeddingPart, ThatDoesNotFitIsRefused) {
  MetaStream stream{Machine{}};
  const Tensor y({Shape{1, 2, 3}}, stream), table({Shape{7, 3}}, stream),
      tokens({Shape{1, 2}, DType::i32}, stream);
  const auto refused = [&](const VocabularyPart& part, const std::string& words) {
    const auto forward = [&] {
      launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = table, .part = part}, stream);
    };
    const auto backward = [&] {
      launch(
          EmbeddingBackward{
              .dweight = table, .dpositions = {}, .dy = y, .tokens = tokens, .part = part},
          stream);
    };
    EXPECT_EQ(error_of(forward), "embedding_forward: " + words);
    EXPECT_EQ(error_of(backward), "embedding_backward: " + words);
  };
  refused({.first = -7, .whole = 14},
          "the part begins at -7 of the rows of the whole vocabulary; it must be 0 or more");
  refused({.first = 8, .whole = 14},
          "the part has 7 rows from 8 on, and the whole vocabulary has 14; they must lie in it");
  refused({.first = 7, .whole = 0},
          "the part has 7 rows from 7 on, and the whole vocabulary has 7; they must lie in it");
  refused({.first = 0, .whole = 6},
          "the part has 7 rows from 0 on, and the whole vocabulary has 6; they must lie in it");
  refused({.first = 0, .whole = -14},
          "the whole vocabulary has -14 rows; use 0 if there are no other parts, or the number of "
          "all parts together, at most 2147483647");
}

TEST(EmbeddingPart, CostsReadItsShareOfTheRows) {
  MetaStream stream{Machine{}};
  const Tensor y({Shape{1, 64, 32}}, stream), table({Shape{10, 32}}, stream),
      tokens({Shape{1, 64}, DType::i32}, stream);
  EmbeddingForward forward{.y = y, .tokens = tokens, .weight = table};
  EmbeddingBackward backward{.dweight = add_to(table), .dpositions = {}, .dy = y, .tokens = tokens};
  EXPECT_EQ(forward.cost().bytes, 2 * bytes(y));
  EXPECT_EQ(backward.cost().bytes, 3 * bytes(y));
  forward.part = backward.part = {.first = 10, .whole = 40};
  EXPECT_EQ(forward.cost().bytes, 1.25 * bytes(y));
  EXPECT_EQ(backward.cost().bytes, 1.5 * bytes(y));
}

}  // namespace
}  // namespace spool::testing
