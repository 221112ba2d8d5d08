// Embeddings on the cpu against sums in f64.

#include "spool/kernels/embedding.h"

#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

constexpr int64_t B = 3, T = 7, V = 11, C = 1031;  // several blocks of columns, and an odd rest

// Random tokens, some of them often, others never.
std::vector<int32_t> some_tokens(int64_t count, int64_t vocabulary) {
  Random random(9);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < count; ++i) {
    const double skewed = random.uniform() * random.uniform() * 0.9;
    all.push_back(static_cast<int32_t>(skewed * static_cast<double>(vocabulary)));
  }
  return all;
}

TEST(Embedding, ForwardAddsRows) {
  CpuStream stream(64 << 20, 2);
  const auto ids = some_tokens(B * T, V);
  const Tensor tokens = integers({B, T}, ids, stream);
  for (const DType t : floating) {
    const Tensor weight = normal({V, C}, t, stream, 1),
                 positions = normal({T + 2, C}, t, stream, 2);
    const Numbers w = values(weight), p = values(positions);
    Numbers plain, placed;
    for (int64_t i = 0; i < B * T * C; ++i) {
      const int64_t n = i / C, c = i % C;
      plain.push_back(at(w, ids[static_cast<size_t>(n)] * C + c));
      placed.push_back(plain.back() + at(p, (2 + n % T) * C + c));
    }
    const Tensor y = unset({B, T, C}, t, stream);
    launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = weight}, stream);
    EXPECT_EQ(values(y), plain);
    launch(EmbeddingForward{.y = y,
                            .tokens = tokens,
                            .weight = weight,
                            .positions = positions,
                            .first_position = 2},
           stream);
    EXPECT_LT(difference(values(y), placed), tolerance(t));
  }
}

TEST(Embedding, BackwardSumsByTokenAndByPosition) {
  CpuStream stream(64 << 20, 2);
  const auto ids = some_tokens(B * T, V);
  const Tensor tokens = integers({B, T}, ids, stream);
  for (const DType t : floating) {
    const Tensor dy = normal({B, T, C}, t, stream, 1);
    const Numbers all = values(dy);
    Numbers by_token(V * C), by_position((T + 2) * C);
    for (int64_t i = 0; i < B * T * C; ++i) {
      const int64_t n = i / C, c = i % C;
      by_token[static_cast<size_t>(ids[static_cast<size_t>(n)] * C + c)] += at(all, i);
      by_position[static_cast<size_t>(n % T * C + c)] += at(all, i);
    }
    for (const DType to : {t, accumulator(t)}) {
      expect_gradient({{V, C}, to}, stream, by_token, [&](const Grad& dweight) {
        launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
               stream);
      });
      expect_gradient({{T + 2, C}, to}, stream, by_position, [&](const Grad& dpositions) {
        launch(
            EmbeddingBackward{.dweight = {}, .dpositions = dpositions, .dy = dy, .tokens = tokens},
            stream);
      });
    }
  }
}

// 500 ones sum to 500, though 256 + 1 is 256 in bf16.
TEST(Embedding, RoundsAGradientOnce) {
  CpuStream stream(64 << 20, 2);
  const Tensor tokens = integers({1, 500}, std::vector<int32_t>(500, 1), stream);
  const Tensor dy = unset({1, 500, 3}, DType::bf16, stream);
  launch(Fill{.out = dy, .value = 1}, stream);
  const Tensor dweight = unset({2, 3}, DType::bf16, stream);
  launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
         stream);
  EXPECT_EQ(values(dweight), (Numbers{0, 0, 0, 500, 500, 500}));
}

TEST(Embedding, RefusesATokenOutsideTheVocabulary) {
  for (const int32_t wrong : {-1, 11, 50257}) {
    const std::string words = sentence("token ", wrong, " at position 4 is not in [0, 11)");
    const auto refused = [&](auto run) {
      CpuStream stream(64 << 20, 2);
      const Tensor tokens = integers({2, 3}, {0, 1, 10, 3, wrong, 5}, stream);
      const Tensor table = normal({11, 4}, DType::f32, stream, 1);
      const Tensor y = normal({2, 3, 4}, DType::f32, stream, 2);
      expect_error(ErrorKind::invalid, {words}, [&] {
        run(tokens, table, y, stream);
        stream.synchronize();
      });
    };
    refused([](const Tensor& tokens, const Tensor& weight, const Tensor& y, Stream& stream) {
      launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = weight}, stream);
    });
    refused([](const Tensor& tokens, const Tensor& dweight, const Tensor& dy, Stream& stream) {
      launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
             stream);
    });
  }
}

TEST(Embedding, BitsDoNotDependOnTheNumberOfThreads) {
  const auto ids = some_tokens(4 * 64, 400);
  for (const DType t : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Tensor tokens = integers({4, 64}, ids, stream);
      const Tensor weight = normal({400, 300}, t, stream, 1), y = unset({4, 64, 300}, t, stream);
      const Tensor positions = normal({64, 300}, t, stream, 2);
      launch(EmbeddingForward{.y = y, .tokens = tokens, .weight = weight, .positions = positions},
             stream);
      Numbers all = values(y);
      launch(
          EmbeddingBackward{
              .dweight = Grad(weight, true), .dpositions = positions, .dy = y, .tokens = tokens},
          stream);
      append(all, weight);
      append(all, positions);
      return all;
    });
  }
}

}  // namespace
}  // namespace spool::testing
