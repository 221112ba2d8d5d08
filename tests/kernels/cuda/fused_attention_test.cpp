// Attention by cuDNN.  On an emulated device a stand-in takes cuDNN's place.

#include "spool/kernels/attention.h"
#include "spool/kernels/tensor_attention_sizes.h"
#include "tests/kernels/cuda_testing.h"
#include "tests/runtime/environment.h"

#if SPOOL_CUDA
#include "spool/kernels/cuda/attention.cuh"
#include "spool/kernels/cuda/attention_fused.cuh"
#include "spool/kernels/cuda/tensor_attention.cuh"
#endif
#if SPOOL_CUDA_EMULATED
#include "tests/emulator/spool/fused_attention.h"
#endif

namespace spool::testing {
namespace {

using cuda::AttentionCut;
using cuda::AttentionShape;

constexpr AttentionShape gpt2{.B = 32, .T = 1024, .H = 12, .Hkv = 12, .D = 64};

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
  const auto& architecture = std::get<CudaArchitecture>(stream.architecture());
  const Tensor before = workspace(fused_forward_bytes(s), stream);
  const Tensor after =
      workspace(fused_backward_bytes(s, cuda::kind_of(backward, architecture), cut), stream);
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

// Plans are found by their shape, the mask and the order of sums included.
TEST(FusedAttention, ShapesWithDifferentMasksOrOrdersDiffer) {
  const cuda::FusedShape causal{.part = gpt2, .whole = gpt2};
  cuda::FusedShape all = causal;
  EXPECT_EQ(all, causal);
  all.mask = Mask::none;
  EXPECT_NE(all, causal);
  cuda::FusedShape unordered = causal;
  unordered.order = SumOrder::any;
  EXPECT_NE(unordered, causal);
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

// What launch() chose has the bits of the kernels that are called by name.
TEST_F(CudaFusedAttention, WithoutItTheOtherKernelsRun) {
  const EnvironmentVariable off("SPOOL_CUDNN", "0");
  const auto stream = cuda_stream();
  auto& cuda = static_cast<CudaStream&>(*stream);
  const auto numbers = [&](const AttentionShape& s, const auto& forward, const auto& backward) {
    const Tensors t(s, *stream);
    forward(t.forward(s));
    AttentionBackward k = t.backward(s);
    const Tensor memory = workspace(cuda::tensor_backward_bytes(s), *stream);
    k.workspace = memory;
    backward(k);
    return t.all();
  };
  const auto launched = [&](const auto& k) { launch(k, *stream); };
  const auto plain = [&](const AttentionShape& s) {
    return numbers(
        s, [&](const auto& k) { cuda::attention_forward(k, cuda); },
        [&](const auto& k) { cuda::attention_backward(k, cuda); });
  };
  const AttentionShape narrow{.B = 2, .T = 20, .H = 2, .Hkv = 1, .D = 8},
      wide{.B = 2, .T = 20, .H = 2, .Hkv = 1, .D = 16};
  EXPECT_EQ(numbers(narrow, launched, launched), plain(narrow));
  const Numbers by_tensor_cores = numbers(
      wide, [&](const auto& k) { cuda::tensor_attention_forward(k, cuda); },
      [&](const auto& k) { cuda::tensor_attention_backward(k, cuda); });
  EXPECT_EQ(numbers(wide, launched, launched), by_tensor_cores);
  EXPECT_NE(by_tensor_cores, plain(wide));
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
