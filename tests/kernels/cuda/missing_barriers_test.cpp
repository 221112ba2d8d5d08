// runs: threads, emulator
// The race checker finds each barrier of some kernels that is not there.

#include "spool/kernels/embedding.h"
#include "spool/kernels/rms_norm.h"
#include "tests/emulator/watcher.h"
#include "tests/kernels/cached_attention_testing.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/kernels/head_norm_testing.h"

namespace spool::testing {
namespace {

using Barriers = emulator::Barriers;

class MissingBarriers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!emulator::watcher) GTEST_SKIP() << "this needs the race checker";
  }
  ~MissingBarriers() override { emulator::barriers = nullptr; }

  // The error of the work with a barrier left out; "" without an error.
  static std::string error_of(const std::function<void(Stream&)>& work, Barriers& barriers) {
    emulator::barriers = &barriers;
    try {
      const auto stream = cuda_stream();
      work(*stream);
      stream->synchronize();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  // Expects that the work has these barriers and that each is missed, by the files they are in.
  static void expect_found(const std::function<void(Stream&)>& work,
                           const std::vector<std::string>& files) {
    Barriers all;
    EXPECT_EQ(error_of(work, all), "");
    std::set<std::string> found;
    for (const Barriers::Place& place : all.met) {
      const std::string file = place.first.substr(place.first.rfind('/') + 1);
      if (std::ranges::find(files, file) == files.end()) continue;
      found.insert(file);
      Barriers but = {.met = {}, .left_out = place};
      const std::string error = error_of(work, but);
      EXPECT_TRUE(contains(error, "race: a thread "))
          << place.first << ':' << place.second << error;
    }
    EXPECT_EQ(found, std::set<std::string>(files.begin(), files.end()));
  }
};

TEST_F(MissingBarriers, OfCachedAttentionAreFound) {
  for (const int64_t n : {1, 20}) {
    expect_found(
        [=](Stream& stream) {
          const Tensor keys = normal({1, 1, 200, 64}, DType::f32, stream, 1);
          const Tensor all = normal({1, 1, 200, 64}, DType::f32, stream, 2);
          const Tensor qkv = normal({1, n, 4 * 64}, DType::f32, stream, 3);
          attend(keys, all, qkv, {.query = 2, .key = 1}, 170, 0.125);
        },
        {n == 1 ? "cached_attention_piece.cuh" : "attention_forward.cu"});
  }
}

// A vocabulary whose digits are more than a block has threads.
TEST_F(MissingBarriers, OfTheEmbeddingsGradientAreFound) {
  expect_found(
      [](Stream& stream) {
        constexpr int64_t V = 70000;
        std::vector<int32_t> tokens(300);
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % V);
        const Tensor dweight = unset({V, 1}, DType::f32, stream);
        const Tensor dy = normal({1, 300, 1}, DType::f32, stream, 1);
        launch(EmbeddingBackward{.dweight = dweight,
                                 .dpositions = {},
                                 .dy = dy,
                                 .tokens = integers({1, 300}, tokens, stream)},
               stream);
      },
      {"embedding_sort.cuh"});
}

TEST_F(MissingBarriers, OfTheNormOfHeadsAreFound) {
  expect_found(
      [](Stream& stream) {
        const HeadNormRun run(9, {.query = 3, .key = 1}, 64, DType::f32, stream);
        const Tensor dx = unset(run.x.shape(), DType::f32, stream);
        const Tensor dq = unset({64}, DType::f32, stream), dk = unset({64}, DType::f32, stream);
        launch(run.backward(dx, dq, dk), stream);
      },
      {"head_norm.cu", "column_sums.cuh"});
}

TEST_F(MissingBarriers, OfTheNormOfRowsAreFound) {
  expect_found(
      [](Stream& stream) {
        const Tensor x = normal({70, 2056}, DType::f32, stream, 1);
        const Tensor weight = normal({2056}, DType::f32, stream, 2);
        const Tensor y = unset(x.shape(), DType::f32, stream), r = unset({70}, DType::f32, stream);
        launch(RmsNormForward{.y = y, .r = r, .x = x, .weight = weight}, stream);
        const Tensor dx = unset(x.shape(), DType::f32, stream);
        const Tensor dweight = unset({2056}, DType::f32, stream);
        launch(
            RmsNormBackward{
                .dx = dx, .dweight = dweight, .dy = y, .x = x, .weight = weight, .r = r},
            stream);
      },
      {"device.cuh", "norm_backward.cuh", "column_sums.cuh"});
}

}  // namespace
}  // namespace spool::testing
