// What computes attention on cuda, and how cuDNN's backward is cut into parts: both by shapes,
// types and architecture alone.

#include "spool/kernels/tensor_attention_sizes.h"
#include "tests/kernels/attention_shapes.h"

namespace spool::testing {
namespace {

using cuda::AttentionCut;
using cuda::AttentionShape;
using cuda::FusedBackwardKind;

constexpr CudaArchitecture hopper{.major = 9}, ampere{.major = 8}, blackwell{.major = 10},
    without{.fused_attention = false};
constexpr AttentionShape gpt2{.B = 32, .T = 1024, .H = 12, .Hkv = 12, .D = 64};
constexpr auto cudnn = AttentionMethod::cudnn, tensor_cores = AttentionMethod::tensor_cores,
               plain = AttentionMethod::plain;

AttentionShape changed(AttentionShape s, int64_t AttentionShape::*what, int64_t to) {
  s.*what = to;
  return s;
}

AttentionMethod forward(const AttentionShape& s, const CudaArchitecture& architecture = hopper) {
  return choose_attention(forward_of(s), architecture).method;
}

AttentionMethod backward(const AttentionShape& s, const BackwardOptions& options = {},
                         const CudaArchitecture& architecture = hopper) {
  return choose_attention(backward_of(s, options), architecture).method;
}

TEST(AttentionChoice, IsCudnnForBf16AndHeadsThatItTakes) {
  EXPECT_EQ(forward(gpt2), cudnn);
  EXPECT_EQ(choose_attention(forward_of(gpt2, DType::f32), hopper).method, plain);
  for (const int64_t D : {8, 80, 128, 136, 256}) {
    EXPECT_EQ(forward(changed(gpt2, &AttentionShape::D, D)), cudnn);
  }
  EXPECT_EQ(forward(changed(gpt2, &AttentionShape::T, 1023)), tensor_cores);
  for (const int64_t D : {4, 65, 264}) {
    EXPECT_EQ(forward(changed(gpt2, &AttentionShape::D, D)), plain);
  }
}

TEST(AttentionChoice, IsCudnnForLargeHeadsBackwardOnlyOnHopper) {
  const AttentionShape large = changed(gpt2, &AttentionShape::D, 256);
  EXPECT_EQ(forward(large, ampere), cudnn);
  EXPECT_EQ(backward(large), cudnn);
  for (const CudaArchitecture& other : {ampere, blackwell}) {
    EXPECT_EQ(backward(large, {}, other), plain);
  }
}

TEST(AttentionChoice, IsTensorCoresWithoutCudnn) {
  EXPECT_EQ(forward(gpt2, without), tensor_cores);
  EXPECT_EQ(backward(gpt2, {}, without), tensor_cores);
  for (const int64_t D : {8, 24, 144}) {
    EXPECT_EQ(forward(changed(gpt2, &AttentionShape::D, D), without), plain);
    EXPECT_EQ(backward(changed(gpt2, &AttentionShape::D, D), {}, without), plain);
  }
}

TEST(AttentionChoice, IsTensorCoresForGradientsThatCudnnDoesNotWrite) {
  EXPECT_EQ(backward(gpt2), cudnn);
  EXPECT_EQ(backward(gpt2, {.add = true}), tensor_cores);
  EXPECT_EQ(backward(gpt2, {.gradient = DType::f32}), tensor_cores);
  EXPECT_EQ(backward(gpt2, {.type = DType::f32, .gradient = DType::f32}), plain);
  AttentionBackward k = backward_of(gpt2);
  k.dqkv = {};
  EXPECT_NE(choose_attention(k, hopper).method, cudnn);
}

TEST(AttentionChoice, IsTensorCoresForRowsOfSeveralTexts) {
  AttentionForward f = forward_of(gpt2);
  AttentionBackward b = backward_of(gpt2);
  f.first = b.first = without_memory({gpt2.B, gpt2.T}, DType::i32);
  EXPECT_EQ(choose_attention(f, hopper).method, tensor_cores);
  EXPECT_EQ(choose_attention(b, hopper).method, tensor_cores);
}

// The plan says so by more parts than there are key heads in all texts.
TEST(AttentionChoice, IsTensorCoresInMoreParts) {
  const AttentionShape shared{.B = 2, .T = 4096, .H = 32, .Hkv = 8, .D = 128};
  for (const CudaArchitecture& architecture : {hopper, ampere, blackwell}) {
    for (const int64_t parts : {1, 2, 5, 16}) {
      EXPECT_EQ(backward(shared, {.parts = parts}, architecture), cudnn);
    }
    EXPECT_EQ(backward(shared, {.parts = 17}, architecture), tensor_cores);
  }
  EXPECT_EQ(choose_attention(forward_of(shared), hopper).method, cudnn);
}

TEST(AttentionChoice, SaysWhy) {
  const auto why = [](const AttentionForward& k, const CudaArchitecture& architecture) {
    return choose_attention(k, architecture).why();
  };
  EXPECT_EQ(why(forward_of(gpt2), hopper), "");
  EXPECT_EQ(why(forward_of(gpt2), without), "without cuDNN");
  EXPECT_EQ(why(forward_of(gpt2, DType::f32), hopper), "values are not bf16");
  EXPECT_EQ(why(forward_of(changed(gpt2, &AttentionShape::D, 8)), without),
            "without cuDNN; tensor cores take heads of 16 to 128 in steps of 16");
  EXPECT_EQ(choose_attention(backward_of(gpt2, {.parts = 32 * 12 + 1}), hopper).why(),
            "the plan leaves it to Spool's kernels");
}

// Products outside the tensor cores are of f32 numbers.
TEST(AttentionChoice, DecidesTheRateOfFlops) {
  const AttentionShape odd = changed(gpt2, &AttentionShape::D, 65);
  for (const CudaArchitecture& architecture : {hopper, without}) {
    EXPECT_EQ(cost_on(forward_of(gpt2), architecture).dtype, DType::bf16);
    EXPECT_EQ(cost_on(backward_of(gpt2), architecture).dtype, DType::bf16);
    EXPECT_EQ(cost_on(forward_of(odd), architecture).dtype, DType::f32);
    EXPECT_EQ(cost_on(backward_of(odd), architecture).dtype, DType::f32);
  }
  EXPECT_EQ(cost_on(forward_of(odd), CpuArchitecture{}).dtype, DType::bf16);
  EXPECT_EQ(cost_on(forward_of(odd), hopper).flops, forward_of(odd).cost().flops);
}

// cuDNN's backward writes the derivatives of all scores and reads them, to add in a fixed order.
TEST(AttentionChoice, DecidesTheBytes) {
  const auto more = [](const AttentionBackward& k, const CudaArchitecture& architecture) {
    return cost_on(k, architecture).bytes - k.cost().bytes;
  };
  const AttentionShape& s = gpt2;
  const double scores = 2.0 * static_cast<double>(s.B * s.H * s.T * s.T);
  EXPECT_EQ(more(backward_of(s), hopper), 2 * scores);
  EXPECT_EQ(more(backward_of(s), ampere), 2 * scores);
  EXPECT_EQ(more(backward_of(s), blackwell), 0);
  EXPECT_EQ(more(backward_of(s), without), 0);
  EXPECT_EQ(more(backward_of(s, {.order = SumOrder::any}), hopper), 0);
}

// In few parts cuDNN is faster than Spool's kernels; in parts that leave multiprocessors idle it
// is slower than in larger ones.
TEST(AttentionChoice, DecidesTheNominalTime) {
  const auto flops = [](int64_t parts) {
    return cost_on(backward_of(gpt2, {.parts = parts}), hopper).flops;
  };
  const double product = backward_of(gpt2).cost().flops;
  EXPECT_DOUBLE_EQ(flops(1), product / 0.3);
  EXPECT_DOUBLE_EQ(flops(32 * 12 + 1), product / 0.15);
  EXPECT_LT(flops(4), 1.2 * flops(1));
  EXPECT_LT(flops(4), flops(32 * 12 + 1));
  EXPECT_GT(flops(32 * 12), 2 * flops(32));
}

TEST(AttentionChoice, DecidesTheWorkspace) {
  const AttentionShape s = changed(gpt2, &AttentionShape::B, 8);
  const size_t delta = sizeof(float) * static_cast<size_t>(s.B * s.H * s.T);
  const auto bytes = [](const auto& k, const CudaArchitecture& a) { return workspace_bytes(k, a); };
  EXPECT_EQ(bytes(forward_of(s), without), 0U);
  EXPECT_EQ(bytes(backward_of(s), without), delta);
  EXPECT_EQ(bytes(backward_of(s, {.add = true}), hopper), delta);
  EXPECT_GT(bytes(backward_of(s), hopper), 100 * delta);
  const size_t any = bytes(backward_of(s, {.order = SumOrder::any}), hopper);
  EXPECT_LT(any, bytes(backward_of(s), hopper) / 2);
}

// Blocks of dk and dv, of all parts.
int64_t dkeys_blocks(const AttentionShape& s) {
  const int64_t tile = s.D <= 64 ? 128 : 64;
  return s.B * s.Hkv * ((s.T + tile - 1) / tile) * cuda::dkeys_parts(s).count;
}

TEST(AttentionChoice, SplitsQueryHeadsWhereKeyHeadsAreFew) {
  std::vector<AttentionShape> all = tested_shapes();
  for (const AttentionShape& s : shapes_of_models()) all.push_back(s);
  for (const int64_t T : {1, 64, 700, 2048}) {
    for (const int64_t B : {1, 3, 20}) all.push_back({.B = B, .T = T, .H = 32, .Hkv = 4, .D = 64});
  }
  for (const AttentionShape& s : all) {
    const cuda::DkeysParts parts = cuda::dkeys_parts(s);
    const int64_t group = s.H / s.Hkv;
    EXPECT_TRUE(dkeys_blocks(s) >= 264 || parts.count == group);
    EXPECT_GE(parts.heads * parts.count, group);
    EXPECT_LT(parts.heads * (parts.count - 1), group);
    // None where there are blocks enough.
    EXPECT_TRUE(parts.count == 1 || dkeys_blocks(s) / parts.count < 264);
  }
  const AttentionShape llama{.B = 1, .T = 2048, .H = 32, .Hkv = 8, .D = 64};
  EXPECT_EQ(cuda::dkeys_parts(llama).count, 4);
  EXPECT_EQ(cuda::dkeys_parts(changed(llama, &AttentionShape::B, 2)).count, 2);
  EXPECT_EQ(cuda::dkeys_parts(changed(llama, &AttentionShape::B, 3)).count, 1);
}

TEST(AttentionChoice, PartsOfTheQueryHeadsTakeMemoryAndTime) {
  const AttentionShape few{.B = 1, .T = 101, .H = 6, .Hkv = 2, .D = 16},
      own = changed(few, &AttentionShape::Hkv, 6);
  const auto on = [](const AttentionShape& s, const CudaArchitecture& a) {
    return workspace_bytes(backward_of(s), a);
  };
  // Delta, of 606 numbers, and three parts of dk and dv from a multiple of 16 bytes on.
  EXPECT_EQ(on(few, without), 4U * (608 + 3 * 101 * 2 * 2 * 16));
  EXPECT_EQ(on(own, without), 4U * 606);
  const auto added = [](const AttentionShape& s) {
    return cost_on(backward_of(s), without).bytes - backward_of(s).cost().bytes;
  };
  EXPECT_EQ(added(few), 2.0 * 4 * 3 * 101 * 2 * 2 * 16);
  EXPECT_EQ(added(own), 0);
  AttentionBackward none = backward_of(few);
  none.dqkv = {};
  EXPECT_EQ(workspace_bytes(none, without), 0U);
}

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

TEST(AttentionCut, MorePartsTakeNoMoreMemory) {
  std::vector<AttentionShape> all = shapes_of_models();
  for (const AttentionShape& s : tested_shapes()) all.push_back(s);
  for (const AttentionShape& s : all) {
    for (const int major : {8, 9, 10}) {
      for (const SumOrder order : enumerators<SumOrder>()) {
        const FusedBackwardKind kind{.order = order, .major = major};
        size_t before = fused_backward_bytes(s, kind);
        for (int64_t parts = 1; parts <= s.B * s.Hkv; ++parts) {
          SCOPED_TRACE(sentence(s.B, " by ", s.T, ", ", s.H, " and ", s.Hkv, " heads, compute ",
                                major, ", order ", name(order), ", in ", parts));
          const AttentionCut cut = cuda::cut_backward(s, parts);
          expect_cut(s, cut);
          int64_t made = 0;
          cut.for_each_part(s, [&](const cuda::AttentionPart&) { ++made; });
          EXPECT_LE(made, parts);
          EXPECT_LE(fused_backward_bytes(s, kind, cut), before);
          before = fused_backward_bytes(s, kind, cut);
        }
        const AttentionShape head{.B = 1, .T = s.T, .H = s.H / s.Hkv, .Hkv = 1, .D = s.D};
        EXPECT_EQ(before, fused_backward_bytes(head, kind));
      }
    }
  }
}

TEST(AttentionCut, PartsHaveEqualSizes) {
  const AttentionCut cut = cuda::cut_backward(gpt2, 4);
  EXPECT_EQ(cut.texts, 8);
  EXPECT_EQ(cut.key_heads, 12);
  const AttentionCut of_heads = cuda::cut_backward(gpt2, 32 * 5);
  EXPECT_EQ(of_heads.texts, 1);
  EXPECT_EQ(of_heads.key_heads, 3);
}

TEST(AttentionCut, DeclaresTheMemoryThatCudnnIsKnownToNeed) {
  for (const AttentionShape& s : tested_shapes()) {
    const double q = 2.0 * static_cast<double>(s.B * s.T * s.H * s.D);
    const double scores = 2.0 * static_cast<double>(s.B * s.H * s.T * s.T);
    const double known = (s.H == s.Hkv ? 0.03 : 2.03) * q + scores;
    const auto declared = static_cast<double>(cuda::fused_backward_bytes(s, {}));
    EXPECT_GT(declared, known);
    EXPECT_LT(declared, 1.3 * known + 2e6);
  }
}

}  // namespace
}  // namespace spool::testing
