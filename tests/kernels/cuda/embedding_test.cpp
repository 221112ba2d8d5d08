// runs: threads
// Embeddings on cuda.

#include "spool/kernels/embedding.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaEmbedding : public OnCuda {};

struct Case {
  int64_t B = 1, T = 1, V = 1, C = 1;
  double skew = 0;  // the share of tokens that are number 2 V / 3
};

// One token; odd columns; several tiles; a token in many runs of the sort; a vocabulary beyond
// 2^16; several pieces.
const std::vector<Case> cases{{},
                              {.B = 3, .T = 7, .V = 11, .C = 33},
                              {.B = 2, .T = 40, .V = 5, .C = 264, .skew = 0.2},
                              {.B = 5, .T = 70, .V = 40, .C = 24, .skew = 0.7},
                              {.B = 4, .T = 33, .V = 70000, .C = 5},
                              {.B = 3, .T = 300, .V = 600, .C = 8, .skew = 0.5}};

Tensor some_tokens(const Case& c, Stream& stream) {
  Random random(9);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < c.B * c.T; ++i) {
    const auto any = static_cast<int64_t>(random.uniform() * static_cast<double>(c.V));
    const int64_t token = random.uniform() < c.skew ? 2 * c.V / 3 : any;
    all.push_back(static_cast<int32_t>(token));
  }
  return integers({c.B, c.T}, all, stream);
}

// normal(), `skip` elements into its memory.
Tensor misaligned(int64_t skip, const Shape& shape, DType type, Stream& stream, uint64_t seed) {
  const int64_t count = shape.numel();
  return normal({skip + count, 1}, type, stream, seed).slice({skip, skip + count}).reshape(shape);
}

TEST_F(CudaEmbedding, ForwardMatchesTheCpu) {
  for (const DType type : cuda_types) {
    for (const Case& c : cases) {
      for (const int64_t skip : {0, 1}) {
        expect_as_on_cpu(
            [=](Stream& stream) {
              const Tensor tokens = some_tokens(c, stream);
              const Tensor weight = misaligned(skip, {c.V, c.C}, type, stream, 1);
              const Tensor positions = normal({c.T + 2, c.C}, type, stream, 2);
              const Tensor plain = unset({c.B, c.T, c.C}, type, stream);
              const Tensor placed = unset({c.B, c.T, c.C}, type, stream);
              launch(EmbeddingForward{.y = plain, .tokens = tokens, .weight = weight}, stream);
              launch(EmbeddingForward{.y = placed,
                                      .tokens = tokens,
                                      .weight = weight,
                                      .positions = positions,
                                      .first_position = 2},
                     stream);
              Numbers all = values(plain);
              append(all, placed);
              return all;
            },
            1e-15);
      }
    }
  }
}

Numbers gradients(const Case& c, DType type, DType to, int64_t skip, Stream& stream) {
  const Tensor tokens = some_tokens(c, stream);
  const Tensor dy = misaligned(skip, {c.B, c.T, c.C}, type, stream, 1);
  const Tensor dweight = unset({c.V, c.C}, to, stream), more = normal({c.V, c.C}, to, stream, 2);
  const Tensor dpositions = unset({c.T + 2, c.C}, to, stream);
  const Tensor more_positions = normal({c.T + 2, c.C}, to, stream, 3);
  launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
         stream);
  launch(EmbeddingBackward{.dweight = Grad(more, /*add=*/true),
                           .dpositions = dpositions,
                           .dy = dy,
                           .tokens = tokens},
         stream);
  launch(EmbeddingBackward{.dweight = {},
                           .dpositions = Grad(more_positions, /*add=*/true),
                           .dy = dy,
                           .tokens = tokens},
         stream);
  Numbers all;
  for (const Tensor& t : {dweight, more, dpositions, more_positions}) append(all, t);
  return all;
}

TEST_F(CudaEmbedding, BackwardMatchesTheCpu) {
  for (const DType type : cuda_types) {
    for (const Case& c : cases) {
      for (const int64_t skip : {0, 1}) {
        const DType to = skip ? type : DType::f32;
        SCOPED_TRACE(sentence(name(type), ' ', c.B, " x ", c.T, " of ", c.V, ", ", c.C));
        expect_as_on_cpu([=](Stream& stream) { return gradients(c, type, to, skip, stream); },
                         tolerance(to));
      }
    }
  }
}

// The sum of a token's rows does not depend on where its run begins and ends in the sorted list;
// whole numbers make every order of additions exact.
TEST_F(CudaEmbedding, SumsRunsThatBeginAndEndAnywhere) {
  for (const int32_t first : {0, 1, 31, 32, 33, 63, 64}) {
    for (const int32_t length : {1, 31, 32, 33, 64, 65, 95, 96, 129}) {
      const auto stream = cuda_stream();
      std::vector<int32_t> ids;
      for (int32_t i = 0; i < 200; ++i) {
        ids.push_back(i < first ? 0 : i < first + length ? 1 : 2);
      }
      const Tensor tokens = integers({1, 200}, ids, *stream);
      const Tensor dy = unset({1, 200, 8}, DType::bf16, *stream);
      launch(Fill{.out = dy, .value = 1}, *stream);
      const Tensor dweight = unset({4, 8}, DType::bf16, *stream);
      launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
             *stream);
      const Numbers found = values(dweight);
      const Numbers wanted{double(first), double(length), double(200 - first - length), 0};
      for (size_t v = 0; v < 4; ++v) {
        for (size_t c = 0; c < 8; ++c) ASSERT_EQ(found[v * 8 + c], wanted[v]) << v;
      }
    }
  }
}

// The rows of a token are added in order: large numbers that cancel leave the small one.
TEST_F(CudaEmbedding, AddsInTheOrderOfTheTokens) {
  const auto stream = cuda_stream();
  const int32_t count = 700;
  std::vector<int32_t> ids;
  std::vector<float> rows;
  for (int32_t i = 0; i < count; ++i) {
    ids.push_back(i % 64);
    const int32_t turn = i / 64;  // each token has 1e8, -1e8, 1, 0, ...
    rows.push_back(turn == 0 ? 1e8f : turn == 1 ? -1e8f : turn == 2 ? 1.0f : 0.0f);
  }
  const Tensor tokens = integers({1, count}, ids, *stream);
  const Tensor dy = make_tensor<float>({1, count, 1}, rows, *stream);
  const Tensor dweight = unset({64, 1}, DType::f32, *stream);
  launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
         *stream);
  EXPECT_EQ(values(dweight), Numbers(64, 1));
}

TEST_F(CudaEmbedding, WithoutTokensAGradientIsZero) {
  expect_as_on_cpu(
      [](Stream& stream) {
        const Tensor tokens = integers({0, 4}, {}, stream);
        const Tensor dy({Shape{0, 4, 8}, DType::f32}, stream);
        const Tensor dweight = unset({5, 8}, DType::f32, stream),
                     dpositions = unset({4, 8}, DType::f32, stream);
        launch(
            EmbeddingBackward{
                .dweight = dweight, .dpositions = dpositions, .dy = dy, .tokens = tokens},
            stream);
        Numbers all = values(dweight);
        append(all, dpositions);
        return all;
      },
      1e-15);
}

// The host does not read tokens: a wrong one shows in its row of the result, and nowhere else.
TEST_F(CudaEmbedding, AWrongTokenGivesNaNAndNoGradient) {
  for (const int32_t wrong : {-1, 11, 50257}) {
    const auto stream = cuda_stream();
    const Tensor tokens = integers({1, 3}, {10, wrong, 0}, *stream);
    const Tensor table = normal({11, 4}, DType::f32, *stream, 1);
    const Tensor y = unset({1, 3, 4}, DType::f32, *stream);
    launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = table}, *stream);
    const Numbers found = values(y), rows = values(table);
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_EQ(found[c], rows[40 + c]);
      EXPECT_TRUE(std::isnan(found[4 + c]));
      EXPECT_EQ(found[8 + c], rows[c]);
    }
    launch(Fill{.out = y, .value = 1}, *stream);
    launch(EmbeddingBackward{.dweight = table, .dpositions = {}, .dy = y, .tokens = tokens},
           *stream);
    Numbers wanted(44, 0);
    for (size_t c = 0; c < 4; ++c) wanted[c] = wanted[40 + c] = 1;
    EXPECT_EQ(values(table), wanted);
  }
}

}  // namespace
}  // namespace spool::testing
