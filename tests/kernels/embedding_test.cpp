// Embeddings on the cpu.

#include "spool/kernels/embedding.h"

#include "spool/autograd/ops.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

constexpr int64_t B = 3, T = 7, V = 11, C = 1031;  // several blocks of columns, the last one odd

// Some tokens often, some never.
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

TEST(Embedding, BackwardAddsUpEachTokenAndEachPosition) {
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

// 500 ones are 500, though in bf16 256 + 1 is 256.
TEST(Embedding, AGradientIsRoundedOnce) {
  CpuStream stream(64 << 20, 2);
  const Tensor tokens = integers({1, 500}, std::vector<int32_t>(500, 1), stream);
  const Tensor dy = unset({1, 500, 3}, DType::bf16, stream);
  launch(Fill{.out = dy, .value = 1}, stream);
  const Tensor dweight = unset({2, 3}, DType::bf16, stream);
  launch(EmbeddingBackward{.dweight = dweight, .dpositions = {}, .dy = dy, .tokens = tokens},
         stream);
  EXPECT_EQ(values(dweight), (Numbers{0, 0, 0, 500, 500, 500}));
}

TEST(Embedding, RefusesATokenThatIsNotInTheVocabulary) {
  for (const int32_t wrong : {-1, 11, 50257}) {
    const std::string what = sentence("token ", wrong, " at position 4 is not in [0, 11)");
    const auto refused = [&](auto run) {
      CpuStream stream(64 << 20, 2);
      const Tensor tokens = integers({2, 3}, {0, 1, 10, 3, wrong, 5}, stream);
      const Tensor table = normal({11, 4}, DType::f32, stream, 1);
      const Tensor y = normal({2, 3, 4}, DType::f32, stream, 2);
      EXPECT_NE(error_of([&] {
                  run(tokens, table, y, stream);
                  stream.synchronize();
                }).find(what),
                std::string::npos);
      // A stream that has failed throws to the end; it is left with nothing to do.
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

TEST(Embedding, DoesNotDependOnTheNumberOfThreads) {
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

TEST(Embedding, BeginsAtAPositionWhereNothingIsRecorded) {
  CpuStream stream(64 << 20, 2);
  const Tensor tokens = integers({1, 3}, {4, 0, 2}, stream);
  const Tensor weight = normal({5, 6}, DType::f64, stream, 1);
  const Tensor positions = normal({9, 6}, DType::f64, stream, 2);
  const auto from = [&](int64_t first, bool recording) {
    Tape tape(stream, {.recording = recording});
    const Var w = tape.input(weight), p = tape.input(positions);
    return values(embedding(tape.input(tokens), w, p, first).tensor());
  };
  const Numbers w = values(weight), p = values(positions);
  Numbers wanted;
  for (const int64_t row : {4, 0, 2}) {
    const int64_t position = 6 + static_cast<int64_t>(wanted.size()) / 6;
    for (int64_t c = 0; c < 6; ++c) {
      wanted.push_back(at(w, row * 6 + c) + at(p, position * 6 + c));
    }
  }
  EXPECT_LT(difference(from(6, false), wanted), 1e-15);
  EXPECT_EQ(from(0, true), from(0, false));
  const auto refusal = [&](int64_t first, bool recording) {
    return error_of([&] { from(first, recording); });
  };
  EXPECT_NE(refusal(1, true).find("does not record"), std::string::npos);
  EXPECT_NE(refusal(7, false).find("from position 7 on, and there are positions for 9"),
            std::string::npos);
  EXPECT_NE(refusal(-1, false).find("from position -1"), std::string::npos);
}

}  // namespace
}  // namespace spool::testing
