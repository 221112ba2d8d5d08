// AdamW and ClipFactor on cuda.

#include "spool/kernels/clip_factor.h"
#include "tests/kernels/adamw_testing.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaAdamW : public OnCuda {};

// Less than a thread's share, tails, several blocks, and no elements.
const std::vector<int64_t> sizes{1, 4, 1023, 0, 1030, 2048, 5, 5001};

void for_every_case(const std::function<void(const AdamWCase&)>& body) {
  for (AdamWCase c : adamw_cases) {
    c.numels = sizes;
    for (c.skip = 0; c.skip < 2; ++c.skip) {
      SCOPED_TRACE(sentence(name(c.type), ", gradients ", name(c.gradient),
                            c.stochastic ? ", stochastic" : "", ", skip ", c.skip));
      body(c);
    }
  }
}

TEST_F(CudaAdamW, TwoStepsMatchTheCpu) {
  for_every_case([](const AdamWCase& c) {
    const auto two_steps = [&](Stream& stream, bool state) {
      const AdamWTensors tensors(c, stream);
      launch(tensors.kernel(), stream);
      launch(tensors.kernel(), stream);
      return state ? tensors.state() : tensors.parameters();
    };
    expect_as_on_cpu([&](Stream& s) { return two_steps(s, /*state=*/true); }, 1e-5);
    expect_as_on_cpu([&](Stream& s) { return two_steps(s, /*state=*/false); },
                     c.stochastic ? 2 * tolerance(c.type) : tolerance(c.type));
  });
}

TEST_F(CudaAdamW, SlicesHaveTheBitsOfTheWhole) {
  constexpr int64_t granule = AdamW::granule;
  for (AdamWCase c : adamw_cases) {
    c.numels = {1, 5 * granule + 5, granule, 3 * granule - 1};
    const auto stream = cuda_stream();
    const AdamWTensors whole(c, *stream), sliced(c, *stream);
    launch(whole.kernel(), *stream);
    launch(in_slices(sliced.kernel(), 2 * granule), *stream);
    EXPECT_EQ(sliced.everything(), whole.everything()) << name(c.type);
  }
}

// The f32 value may differ in its last bit, which changes one rounding in 2^16.
TEST_F(CudaAdamW, AlmostEveryRoundingMatchesTheCpu) {
  AdamWCase c{.numels = {20000, 3000}, .type = DType::bf16, .stochastic = true};
  const auto step = [&](Stream& stream) {
    const AdamWTensors tensors(c, stream);
    launch(tensors.kernel(), stream);
    return tensors.parameters();
  };
  CpuStream cpu(on_both, 1);
  const Numbers wanted = step(cpu), found = step(*cuda_stream());
  ASSERT_EQ(found.size(), wanted.size());
  int64_t different = 0;
  for (size_t i = 0; i < found.size(); ++i) different += found[i] != wanted[i];
  EXPECT_LE(different, 10);
}

TEST_F(CudaAdamW, RoundsExactValuesToTheBitsOfTheCpu) {
  for (const int64_t skip : {0, 1}) {
    for (const int64_t n : {1, 1025, 2049, 9000}) {
      expect_as_on_cpu(
          [&](Stream& stream) {
            const Tensor w = normal({skip + n, 1}, DType::bf16, stream, 1).slice({skip, skip + n});
            return ExactStep(w, stream).take(stream);
          },
          1e-30);
    }
  }
}

TEST_F(CudaAdamW, RoundingKeepsFiniteValuesFinite) {
  const auto stream = cuda_stream();
  const float largest = std::bit_cast<float>(0x7f7f0000);
  const auto after = [&](float weight, float rate) {
    const Tensor w({Shape{100}, DType::bf16}, *stream);
    launch(Fill{.out = w, .value = weight}, *stream);
    return ExactStep(w, *stream, rate).take(*stream);
  };
  EXPECT_EQ(after(largest, -0x1p-10f), Numbers(100, largest));
  EXPECT_EQ(after(-largest, -0x1p-10f), Numbers(100, -largest));
  EXPECT_EQ(after(largest, -1), Numbers(100, std::numeric_limits<double>::infinity()));
  for (const double x : after(std::numeric_limits<float>::quiet_NaN(), 0x1p-10f)) {
    EXPECT_TRUE(std::isnan(x));
  }
}

TEST_F(CudaAdamW, ChangesNothingIfTheGradientsAreNotFinite) {
  for_every_case([](const AdamWCase& c) {
    const auto stream = cuda_stream();
    const AdamWTensors tensors(c, *stream);
    const Numbers before = tensors.everything();
    launch(Fill{.out = tensors.clip()}, *stream);
    launch(tensors.kernel(), *stream);
    EXPECT_EQ(tensors.everything(), before);
  });
}

TEST_F(CudaAdamW, ClipFactorMatchesTheCpu) {
  for (const double squared : {0.0, 0.25, 16.0, 1e300, HUGE_VAL, std::nan("")}) {
    for (const float limit : {0.0f, 1.0f}) {
      const auto clip_of = [=](Stream& stream) {
        const Tensor clip = unset({3}, DType::f32, stream);
        const Tensor in = make_tensor<double>({1}, std::vector<double>{squared}, stream);
        launch(ClipFactor{.clip = clip, .squared = in, .limit = limit}, stream);
        return read<float>(clip);
      };
      CpuStream cpu(on_both, 1);
      const std::vector<float> wanted = clip_of(cpu), found = clip_of(*cuda_stream());
      for (size_t i = 0; i < 3; ++i) {
        const bool both_nan = std::isnan(found[i]) && std::isnan(wanted[i]);
        EXPECT_TRUE(both_nan || found[i] == wanted[i]) << squared << ' ' << limit << ' ' << i;
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
