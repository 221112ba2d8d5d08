// Attention by cuDNN: when it is chosen, and how its backward is cut into parts.  On an emulated
// device a stand-in takes cuDNN's place.

#include "spool/kernels/attention.h"
#include "spool/kernels/attention_sizes.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/runtime/environment.h"

#if SPOOL_CUDA
#include "spool/kernels/cuda/attention_fused.cuh"
#endif
#if SPOOL_CUDA_EMULATED
#include "tests/emulator/spool/fused_attention.h"
#endif

namespace spool::testing {
namespace {

using cuda::AttentionCut;
using cuda::AttentionShape;
using cuda::is_fused;

View view(const Shape& shape, DType type) { return {nullptr, {shape, type}}; }

// Kernels without memory, for decisions that depend on shapes and types alone.
AttentionForward forward_of(const AttentionShape& s, DType type) {
  return {.y = view({s.B, s.T, s.H * s.D}, type),
          .lse = view({s.B, s.H, s.T}, DType::f32),
          .qkv = view({s.B, s.T, (s.H + 2 * s.Hkv) * s.D}, type),
          .heads = {.query = s.H, .key = s.Hkv}};
}

AttentionBackward backward_of(const AttentionShape& s, DType type, DType gradient, bool add) {
  const AttentionForward f = forward_of(s, type);
  return {.dqkv = Grad(view(f.qkv.shape(), gradient), add),
          .dy = f.y,
          .qkv = f.qkv,
          .y = f.y,
          .lse = f.lse,
          .heads = f.heads};
}

constexpr CudaArchitecture with{.fused_attention = true}, without{.fused_attention = false};
constexpr AttentionShape gpt2{.B = 32, .T = 1024, .H = 12, .Hkv = 12, .D = 64};

AttentionShape changed(AttentionShape s, int64_t AttentionShape::*what, int64_t to) {
  s.*what = to;
  return s;
}

TEST(FusedAttention, IsChosenForBf16AndHeadsThatCudnnTakes) {
  EXPECT_TRUE(is_fused(forward_of(gpt2, DType::bf16), with));
  EXPECT_FALSE(is_fused(forward_of(gpt2, DType::bf16), without));
  EXPECT_FALSE(is_fused(forward_of(gpt2, DType::f32), with));
  for (const int64_t D : {8, 80, 128}) {
    EXPECT_TRUE(is_fused(forward_of(changed(gpt2, &AttentionShape::D, D), DType::bf16), with));
  }
  for (const int64_t D : {4, 65, 136}) {
    EXPECT_FALSE(is_fused(forward_of(changed(gpt2, &AttentionShape::D, D), DType::bf16), with));
  }
  EXPECT_FALSE(is_fused(forward_of(changed(gpt2, &AttentionShape::T, 1023), DType::bf16), with));
}

TEST(FusedAttention, IsChosenForBf16GradientsThatAreNotAddedTo) {
  const auto fused = [](const AttentionShape& s, DType gradient, bool add) {
    return is_fused(backward_of(s, DType::bf16, gradient, add), with);
  };
  EXPECT_TRUE(fused(gpt2, DType::bf16, /*add=*/false));
  EXPECT_FALSE(fused(gpt2, DType::bf16, /*add=*/true));
  EXPECT_FALSE(fused(gpt2, DType::f32, /*add=*/false));
  // One head of these needs more than the limit.
  EXPECT_FALSE(fused(changed(gpt2, &AttentionShape::T, 16384), DType::bf16, /*add=*/false));
}

const AttentionShape shapes[] = {
    gpt2,
    {.B = 1, .T = 4, .H = 1, .Hkv = 1, .D = 8},
    {.B = 7, .T = 2048, .H = 32, .Hkv = 8, .D = 128},
    {.B = 3, .T = 8192, .H = 16, .Hkv = 16, .D = 64},
    {.B = 2, .T = 4096, .H = 25, .Hkv = 5, .D = 80},
    {.B = 1, .T = 8000, .H = 6, .Hkv = 3, .D = 64},
};

// Expects every text and key head in exactly one part, and no part above the cut's sizes.
void expect_cut(const AttentionShape& s, const AttentionCut& cut) {
  std::vector<int> seen(static_cast<size_t>(s.B * s.Hkv));
  cut.for_each_part(s, [&](const cuda::AttentionPart& part) {
    EXPECT_LE(part.texts.size(), cut.texts);
    EXPECT_LE(part.key_heads.size(), cut.key_heads);
    EXPECT_TRUE(cut.texts == 1 || part.key_heads.size() == s.Hkv);
    for (int64_t b = part.texts.begin; b < part.texts.end; ++b) {
      for (int64_t h = part.key_heads.begin; h < part.key_heads.end; ++h) {
        ++seen[static_cast<size_t>(b * s.Hkv + h)];
      }
    }
  });
  for (const int times : seen) EXPECT_EQ(times, 1);
}

TEST(FusedAttention, PartsFitTheLimit) {
  for (const AttentionShape& s : shapes) {
    SCOPED_TRACE(sentence(s.B, " by ", s.T, ", ", s.H, " and ", s.Hkv, " heads"));
    const AttentionCut cut = cuda::cut_backward(s);
    expect_cut(s, cut);
    if (!is_fused(backward_of(s, DType::bf16, DType::bf16, /*add=*/false), with)) continue;
    EXPECT_LE(fused_backward_bytes(s, cut), cuda::max_attention_bytes);
  }
  const AttentionCut whole = cuda::cut_backward(shapes[1]),
                     long_texts = cuda::cut_backward(shapes[3]);
  EXPECT_EQ(whole.texts, 1);
  EXPECT_EQ(long_texts.texts, 1);
  EXPECT_EQ(long_texts.key_heads, 1);
}

TEST(FusedAttention, PartsHaveEqualSizes) {
  const AttentionCut cut = cuda::cut_backward(gpt2);
  EXPECT_EQ(cut.texts, 8);  // of 32, where 9 would fit
  EXPECT_EQ(cut.key_heads, 12);
}

TEST(FusedAttention, DeclaresTheMemoryThatCudnnIsKnownToNeed) {
  for (const AttentionShape& s : shapes) {
    const double q = 2.0 * static_cast<double>(s.B * s.T * s.H * s.D);
    const double scores = 2.0 * static_cast<double>(s.B * s.H * s.T * s.T);
    const double known = (s.H == s.Hkv ? 2.03 : 4.03) * q + scores;
    const auto declared = static_cast<double>(cuda::fused_backward_bytes(s));
    EXPECT_GT(declared, known);
    EXPECT_LT(declared, 1.3 * known + 2e6);
  }
}

#if SPOOL_CUDA
class CudaFusedAttention : public OnCuda {};

struct Tensors {
  Tensor qkv, dy, y, lse, dqkv;
  Mask mask;

  Tensors(const AttentionShape& s, Stream& stream, Mask m = Mask::causal) : mask(m) {
    const Shape packed{s.B, s.T, (s.H + 2 * s.Hkv) * s.D}, values{s.B, s.T, s.H * s.D};
    qkv = normal(packed, DType::bf16, stream, 1);
    dy = normal(values, DType::bf16, stream, 2);
    y = unset(values, DType::bf16, stream);
    lse = unset({s.B, s.H, s.T}, DType::f32, stream);
    dqkv = unset(packed, DType::bf16, stream);
  }
  AttentionForward forward(const AttentionShape& s) const {
    return {.y = y,
            .lse = lse,
            .qkv = qkv,
            .heads = {.query = s.H, .key = s.Hkv},
            .scale = 1 / std::sqrt(static_cast<double>(s.D)),
            .mask = mask};
  }
  AttentionBackward backward(const AttentionShape& s) const {
    const AttentionForward f = forward(s);
    return {.dqkv = dqkv,
            .dy = dy,
            .qkv = qkv,
            .y = y,
            .lse = lse,
            .heads = f.heads,
            .scale = f.scale,
            .mask = mask};
  }
  Numbers all() const {
    Numbers numbers = values(y);
    append(numbers, lse);
    append(numbers, dqkv);
    return numbers;
  }
};

Tensor workspace(size_t bytes, Stream& stream) {
  return Tensor({Shape{static_cast<int64_t>(bytes / sizeof(float)) + 1}}, stream);
}

// Attention by cuDNN (by the kernels on the cpu), its backward cut as given.
Numbers by_parts(const AttentionShape& s, Mask mask, const AttentionCut& cut, Stream& stream) {
  const Tensors t(s, stream, mask);
  auto forward = t.forward(s);
  auto backward = t.backward(s);
  if (stream.device().type == DeviceType::cpu) {
    launch(forward, stream);
    launch(backward, stream);
    return t.all();
  }
  auto& cuda = static_cast<CudaStream&>(stream);
  const Tensor before = workspace(fused_forward_bytes(s), stream);
  const Tensor after = workspace(fused_backward_bytes(s, cut), stream);
  forward.workspace = before;
  backward.workspace = after;
  cuda::fused_forward(forward, cuda);
  cuda::fused_backward(backward, cut, cuda);
  return t.all();
}

bool there_is_cudnn() {
  const auto stream = cuda_stream();
  return std::get<CudaArchitecture>(stream->architecture()).fused_attention;
}

// A stream's plans are found by their shape, the mask included.
TEST(FusedAttention, ShapesWithDifferentMasksDiffer) {
  const cuda::FusedShape causal{.part = gpt2, .whole = gpt2};
  cuda::FusedShape all = causal;
  EXPECT_EQ(all, causal);
  all.mask = Mask::none;
  EXPECT_NE(all, causal);
}

TEST_F(CudaFusedAttention, MatchesTheCpuHoweverItIsCut) {
  if (!there_is_cudnn()) GTEST_SKIP() << "there is no cuDNN here";
  for (const AttentionShape& s : {AttentionShape{.B = 1, .T = 4, .H = 1, .Hkv = 1, .D = 8},
                                  {.B = 3, .T = 20, .H = 4, .Hkv = 4, .D = 16},
                                  {.B = 3, .T = 12, .H = 6, .Hkv = 3, .D = 8},
                                  {.B = 2, .T = 36, .H = 4, .Hkv = 1, .D = 24}}) {
    for (const AttentionCut& cut : {AttentionCut{.texts = s.B, .key_heads = s.Hkv},
                                    {.texts = 2, .key_heads = s.Hkv},
                                    {.texts = 1, .key_heads = 2},
                                    {.texts = 1, .key_heads = 1}}) {
      SCOPED_TRACE(sentence(s.B, " by ", s.T, ", ", s.H, " and ", s.Hkv, " heads, cut to ",
                            cut.texts, " by ", cut.key_heads));
      for (const Mask mask : enumerators<Mask>()) {
        expect_as_on_cpu([&](Stream& stream) { return by_parts(s, mask, cut, stream); }, 1e-2);
      }
    }
  }
}

#if SPOOL_CUDA_EMULATED
TEST_F(CudaFusedAttention, IsChosenWherePossible) {
  const AttentionShape s{.B = 2, .T = 8, .H = 2, .Hkv = 2, .D = 8};
  const auto stream = cuda_stream();
  const Tensors t(s, *stream);
  const emulator::FusedAttention before = emulator::fused_attention();
  launch(t.forward(s), *stream);
  launch(t.backward(s), *stream);
  EXPECT_EQ(emulator::fused_attention().forwards, before.forwards + 1);
  EXPECT_EQ(emulator::fused_attention().backwards, before.backwards + 1);
  auto added = t.backward(s);
  added.dqkv.accumulate = true;
  launch(added, *stream);
  EXPECT_EQ(emulator::fused_attention().backwards, before.backwards + 1);
}

TEST_F(CudaFusedAttention, MustRunOnceBeforeACapture) {
  const AttentionShape s{.B = 1, .T = 4, .H = 1, .Hkv = 1, .D = 8};
  const auto stream = cuda_stream();
  const Tensors t(s, *stream);
  const auto capture = [&] { (void)stream->capture([&] { launch(t.forward(s), *stream); }); };
  expect_error(ErrorKind::invalid, {"once before"}, capture);
  launch(t.forward(s), *stream);
  EXPECT_NO_THROW(capture());
}

TEST_F(CudaFusedAttention, TheEnvironmentTurnsItOff) {
  {
    const EnvironmentVariable off("SPOOL_CUDNN", "0");
    EXPECT_FALSE(there_is_cudnn());
  }
  EXPECT_TRUE(there_is_cudnn());
}
#endif
#endif

}  // namespace
}  // namespace spool::testing
