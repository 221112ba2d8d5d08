// runs: threads
// Attention on tensor cores, called past the choice between the kernels on cuda.

#include "spool/kernels/cuda/tensor_attention.cuh"
#include "spool/kernels/tensor_attention_sizes.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/runtime/environment.h"

namespace spool::testing {
namespace {

#if SPOOL_CUDA

class CudaTensorAttention : public OnCuda {};

// As for cuDNN, which rounds p and ds to bf16 in the same places.
constexpr double bound = 1e-2;

// Tiles have 32, 64 or 128 rows: on, below and above these.  Head sizes of each of the four that
// have kernels and between them, alone and in groups.
const AttentionCase cases[] = {{1, 1, 1, 1, 16},    {2, 31, 3, 1, 32},  {1, 130, 2, 1, 64},
                               {1, 64, 2, 2, 48},   {2, 65, 4, 2, 80},  {1, 129, 1, 1, 96},
                               {1, 127, 2, 1, 112}, {1, 200, 2, 1, 128}};
const AttentionCase packed_cases[] = {
    {2, 150, 2, 1, 64, Mask::causal, 11},
    {2, 300, 1, 1, 32, Mask::causal, 130},
    {1, 130, 2, 2, 128, Mask::causal, 64},
    {2, 140, 1, 1, 96, Mask::causal, AttentionCase::any_first},
};

// The tensors that a pass writes hold NaN until then.
struct Pass : AttentionTensors {
  AttentionCase c;
  double scale;

  Pass(const AttentionCase& extents, DType gradient, Stream& stream)
      : AttentionTensors{.qkv = normal(extents.qkv(), DType::bf16, stream, 1),
                         .dy = normal(extents.y(), DType::bf16, stream, 2),
                         .y = unset(extents.y(), DType::bf16, stream),
                         .lse = unset({extents.B, extents.H, extents.T}, DType::f32, stream),
                         .dqkv = unset(extents.qkv(), gradient, stream)},
        c(extents),
        scale(extents.scale()) {
    if (c.packed) first = integers({c.B, c.T}, c.firsts(), stream);
  }

  void forward() const {
    if (!on_cuda()) return AttentionTensors::forward(c, scale);
    cuda::tensor_attention_forward({.y = y,
                                    .lse = lse,
                                    .qkv = qkv,
                                    .heads = c.heads(),
                                    .scale = scale,
                                    .mask = c.mask,
                                    .first = first},
                                   cuda_stream());
  }
  void backward(const Grad& to) const {
    if (!on_cuda()) return AttentionTensors::backward(c, scale, to);
    const size_t bytes = cuda::tensor_backward_bytes(cuda::attention_shape(qkv, y, c.heads()));
    const auto floats = static_cast<int64_t>(bytes / sizeof(float));
    const Tensor workspace = unset({floats}, DType::f32, qkv.stream());
    cuda::tensor_attention_backward({.dqkv = to,
                                     .dy = dy,
                                     .qkv = qkv,
                                     .y = y,
                                     .lse = lse,
                                     .heads = c.heads(),
                                     .scale = scale,
                                     .mask = c.mask,
                                     .first = first,
                                     .workspace = workspace},
                                    cuda_stream());
  }
  Numbers both() const {
    forward();
    backward(dqkv);
    Numbers all = values(y);
    append(all, dqkv);
    return all;
  }

 private:
  bool on_cuda() const { return qkv.stream().device().type == DeviceType::cuda; }
  CudaStream& cuda_stream() const { return static_cast<CudaStream&>(qkv.stream()); }
};

void expect_forward(const AttentionCase& c) {
  SCOPED_TRACE(sentence(c));
  const auto result = [&](Tensor Pass::*what) {
    return [=](Stream& stream) {
      const Pass pass(c, DType::bf16, stream);
      pass.forward();
      return values(pass.*what);
    };
  };
  expect_as_on_cpu(result(&Pass::y), bound);
  expect_as_on_cpu(result(&Pass::lse), 1e-5);
}

void expect_backward(const AttentionCase& c, DType gradient, bool accumulate) {
  SCOPED_TRACE(sentence(c, ", gradient ", name(gradient), accumulate ? " +" : ""));
  const auto dqkv = [=](Stream& stream) {
    const Pass pass(c, gradient, stream);
    pass.forward();
    if (!accumulate) {
      pass.backward(pass.dqkv);
      return values(pass.dqkv);
    }
    const Tensor sum = normal(pass.dqkv.shape(), gradient, stream, 3);
    pass.backward(add_to(sum));
    return values(sum);
  };
  expect_as_on_cpu(dqkv, bound);
}

TEST_F(CudaTensorAttention, ForwardMatchesTheCpu) {
  for (const AttentionCase& c : cases) {
    for (const Mask mask : enumerators<Mask>()) expect_forward(c.with(mask));
  }
}

TEST_F(CudaTensorAttention, BackwardMatchesTheCpu) {
  for (const AttentionCase& c : cases) {
    for (const Mask mask : enumerators<Mask>()) {
      expect_backward(c.with(mask), DType::bf16, /*accumulate=*/false);
    }
  }
}

TEST_F(CudaTensorAttention, AddsToAGradientOfEitherType) {
  for (const AttentionCase& c :
       {AttentionCase{1, 37, 4, 2, 16}, AttentionCase{1, 70, 2, 2, 112, Mask::none}}) {
    expect_backward(c, DType::bf16, /*accumulate=*/true);
    expect_backward(c, DType::f32, /*accumulate=*/true);
    expect_backward(c, DType::f32, /*accumulate=*/false);
  }
}

// Parts of one head each, and of two with one left over.
TEST_F(CudaTensorAttention, PartsOfTheQueryHeadsMatchTheCpu) {
  const auto parts = [](const AttentionCase& c) {
    return cuda::dkeys_parts({.B = c.B, .T = c.T, .H = c.H, .Hkv = c.Hkv, .D = c.D}).count;
  };
  const AttentionCase many{1, 1, 32, 1, 16}, three{132, 3, 5, 1, 16};
  EXPECT_EQ(parts(many), 32);
  EXPECT_EQ(parts(three), 3);
  expect_backward(three, DType::bf16, /*accumulate=*/false);
  bool to_f32 = true;  // by night, each case is tried with both types
  for (const AttentionCase& c :
       {many, AttentionCase{1, 33, 32, 1, 32}, AttentionCase{1, 65, 3, 1, 128}}) {
    to_f32 = !to_f32;
    if (!to_f32 || nightly()) expect_backward(c, DType::bf16, /*accumulate=*/false);
    if (to_f32 || nightly()) expect_backward(c, DType::f32, /*accumulate=*/true);
  }
  expect_backward({1, 131, 6, 2, 64, Mask::none}, DType::bf16, /*accumulate=*/true);
}

// A part alone is written to the gradient; parts are rounded to bf16 once, after they are added: so
// a group has the bits of its heads added in f32.
TEST_F(CudaTensorAttention, PartsAreAddedInOrderAndRoundedOnce) {
  const int64_t T = 70, D = 16, H = 3;
  const auto stream = cuda_stream();
  const Pass all({1, T, H, 1, D}, DType::bf16, *stream);
  all.forward();
  all.backward(all.dqkv);
  const Numbers qkv = values(all.qkv), dy = values(all.dy), found = values(all.dqkv);
  std::vector<float> sums(static_cast<size_t>(T * 2 * D));
  for (int64_t h = 0; h < H; ++h) {
    const Pass one({1, T, 1, 1, D}, DType::f32, *stream);
    std::vector<bf16> own, own_dy;
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t d = 0; d < 3 * D; ++d) {
        const int64_t at = d < D ? h * D + d : (H - 1) * D + d;
        own.emplace_back(static_cast<float>(qkv[static_cast<size_t>(t * (H + 2) * D + at)]));
      }
      for (int64_t d = 0; d < D; ++d) {
        own_dy.emplace_back(static_cast<float>(dy[static_cast<size_t>((t * H + h) * D + d)]));
      }
    }
    write<bf16>(one.qkv, own);
    write<bf16>(one.dy, own_dy);
    one.forward();
    one.backward(one.dqkv);
    const Numbers part = values(one.dqkv);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] += static_cast<float>(part[i / (2 * D) * 3 * D + D + i % (2 * D)]);
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const double wanted = static_cast<float>(bf16(sums[i]));
    ASSERT_EQ(found[i / (2 * D) * (H + 2) * D + H * D + i % (2 * D)], wanted) << i;
  }
}

// Parts are memory that a rehearsal sees.
TEST_F(CudaTensorAttention, ItsPeakIsForetold) {
  const EnvironmentVariable off("SPOOL_CUDNN", "0");
  const auto peak = [](Stream& stream, const AttentionCase& c) {
    const Pass pass(c, DType::bf16, stream);
    pass.AttentionTensors::forward(c, c.scale());
    pass.AttentionTensors::backward(c, c.scale(), pass.dqkv);
    stream.synchronize();
    return stream.memory().peak;
  };
  for (const AttentionCase& c : {AttentionCase{1, 33, 8, 1, 16}, AttentionCase{2, 40, 2, 2, 16}}) {
    const auto stream = cuda_stream();
    MetaStream meta(Machine{.architecture = stream->architecture()});
    EXPECT_EQ(peak(meta, c), peak(*stream, c));
  }
}

TEST_F(CudaTensorAttention, SeesKeysFromTheFirstOn) {
  for (const AttentionCase& c : packed_cases) {
    expect_forward(c);
    expect_backward(c, DType::bf16, /*accumulate=*/false);
  }
}

void set_tokens(const Tensor& t, int64_t begin, int64_t end, float x) {
  const Numbers before = values(t);
  std::vector<bf16> all(before.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t token = static_cast<int64_t>(i) / t.shape().row();
    all[i] = bf16(begin <= token && token < end ? x : static_cast<float>(before[i]));
  }
  write<bf16>(t, all);
}

// NaN in one of two packed texts would reach the other through weights of 0, if tiles that see
// nothing of each other were computed.
TEST_F(CudaTensorAttention, SkipsTilesThatSeeNothing) {
  for (const int64_t D : {64, 128}) {
    const AttentionCase c{1, 256, 1, 1, D, Mask::causal, 128};
    for (const int64_t bad : {0, 128}) {
      const auto stream = cuda_stream();
      const Pass pass(c, DType::bf16, *stream);
      set_tokens(pass.qkv, bad, bad + 128, std::nanf(""));
      set_tokens(pass.dy, bad, bad + 128, std::nanf(""));
      pass.forward();
      pass.backward(pass.dqkv);
      for (const Tensor& t : {pass.y, pass.dqkv}) {
        const Numbers all = values(t);
        for (size_t i = 0; i < all.size(); ++i) {
          const int64_t token = static_cast<int64_t>(i) / t.shape().row();
          ASSERT_EQ(std::isnan(all[i]), token / 128 * 128 == bad) << token;
        }
      }
    }
  }
}

// Scores of both signs, about 1e4.  Whole numbers, which bf16 holds exactly.
TEST_F(CudaTensorAttention, LargeScoresDoNotOverflow) {
  const auto work = [=](Stream& stream) {
    Pass pass({1, 70, 2, 1, 16}, DType::bf16, stream);
    pass.scale = 1;
    std::vector<bf16> large;
    for (const double x : values(pass.qkv)) {
      large.emplace_back(std::round(30 * static_cast<float>(x)));
    }
    write<bf16>(pass.qkv, large);
    pass.forward();
    return values(pass.y);
  };
  expect_as_on_cpu(work, bound);
}

TEST_F(CudaTensorAttention, AScaleMayBeNegativeOrZero) {
  for (const double scale : {-0.3, 0.0}) {
    for (const Mask mask : enumerators<Mask>()) {
      const auto work = [=](Stream& stream) {
        Pass pass({1, 70, 1, 1, 32, mask}, DType::bf16, stream);
        pass.scale = scale;
        return pass.both();
      };
      expect_as_on_cpu(work, bound);
    }
  }
}

// Where the last tile of keys is not full, its missing keys have no part in the sums, however small
// the scores of the others are.
TEST_F(CudaTensorAttention, WithoutAMaskTheMissingKeysOfATileHaveNoWeight) {
  const AttentionCase c{1, 65, 1, 1, 16, Mask::none};
  const auto work = [=](Stream& stream) {
    const Pass pass(c, DType::bf16, stream);
    const Numbers some = values(pass.qkv);
    std::vector<bf16> all;
    for (const double x : some) all.emplace_back(static_cast<float>(x));
    for (size_t i = 0; i < all.size(); i += 48) all[i] = bf16(100.0f), all[i + 16] = bf16(-100.0f);
    write<bf16>(pass.qkv, all);
    return pass.both();
  };
  expect_as_on_cpu(work, bound);
}

TEST_F(CudaTensorAttention, RefusesOtherHeadSizes) {
  const auto stream = cuda_stream();
  for (const int64_t D : {24, 144}) {
    const Pass pass({1, 2, 1, 1, D}, DType::bf16, *stream);
    expect_error(ErrorKind::invalid, {"head size", std::to_string(D)}, [&] { pass.forward(); });
    expect_error(ErrorKind::invalid, {"head size"}, [&] { pass.backward(pass.dqkv); });
  }
}

#endif

}  // namespace
}  // namespace spool::testing
