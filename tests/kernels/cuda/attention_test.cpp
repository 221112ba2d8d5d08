// runs: threads
// AttentionForward and AttentionBackward on cuda, by the kernels without tensor cores, called past
// the choice between kernels.

#include "spool/kernels/attention.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "tests/kernels/attention_testing.h"
#include "tests/kernels/cuda_testing.h"

#if SPOOL_CUDA
#include "spool/kernels/cuda/attention.cuh"
#endif

namespace spool::testing {
namespace {

class CudaAttention : public OnCuda {};

// Tiles have 16, 32 or 64 rows: on, below and above these.  Heads that are loaded in vectors of
// four and not, in each of the three sizes that have kernels, alone and in groups.
const AttentionCase cases[] = {{1, 1, 1, 1, 1},    {2, 3, 3, 1, 5},    {1, 65, 2, 2, 3},
                               {1, 130, 2, 1, 64}, {1, 64, 2, 2, 64},  {2, 63, 4, 2, 62},
                               {1, 70, 2, 1, 80},  {1, 66, 1, 1, 127}, {1, 33, 1, 1, 256},
                               {1, 50, 2, 1, 201}};

// The tensors that a pass writes hold NaN until then.
struct Pass : AttentionTensors {
  Pass(const AttentionCase& c, DType t, DType gradient, Stream& stream)
      : AttentionTensors{.qkv = normal(c.qkv(), t, stream, 1),
                         .dy = normal(c.y(), t, stream, 2),
                         .y = unset(c.y(), t, stream),
                         .lse = unset({c.B, c.H, c.T}, DType::f32, stream),
                         .dqkv = unset(c.qkv(), gradient, stream)} {
    if (c.packed) first = integers({c.B, c.T}, c.firsts(), stream);
  }

#if SPOOL_CUDA
  void forward(const AttentionCase& c, double scale) const {
    if (!on_cuda()) return AttentionTensors::forward(c, scale);
    const AttentionForward k = forward_kernel(c, scale);
    k.check_arguments();
    cuda::attention_forward(k, static_cast<CudaStream&>(qkv.stream()));
  }
  void backward(const AttentionCase& c, double scale, const Grad& to) const {
    if (!on_cuda()) return AttentionTensors::backward(c, scale, to);
    AttentionBackward k = backward_kernel(c, scale, to);
    k.check_arguments();
    const Tensor delta = unset(lse.shape(), DType::f32, qkv.stream());
    k.workspace = delta;
    cuda::attention_backward(k, static_cast<CudaStream&>(qkv.stream()));
  }

 private:
  bool on_cuda() const { return qkv.stream().device().type == DeviceType::cuda; }
#endif
};

void expect_forward(const AttentionCase& c, DType t) {
  SCOPED_TRACE(sentence(c, ", ", name(t)));
  const auto y = [=](Stream& stream) {
    const Pass pass(c, t, t, stream);
    pass.forward(c, c.scale());
    return values(pass.y);
  };
  const auto lse = [=](Stream& stream) {
    const Pass pass(c, t, t, stream);
    pass.forward(c, c.scale());
    return values(pass.lse);
  };
  expect_as_on_cpu(y, tolerance(t));
  expect_as_on_cpu(lse, 1e-5);
}

TEST_F(CudaAttention, ForwardMatchesTheCpu) {
  for (const AttentionCase& c : cases) {
    for (const Mask mask : enumerators<Mask>()) {
      for (const DType t : cuda_types) expect_forward(c.with(mask), t);
    }
  }
}

void expect_backward(const AttentionCase& c, DType t, DType gradient, bool accumulate) {
  SCOPED_TRACE(sentence(c, ", ", name(t), ", gradient ", name(gradient), accumulate ? " +" : ""));
  const auto dqkv = [=](Stream& stream) {
    const Pass pass(c, t, gradient, stream);
    pass.forward(c, c.scale());
    if (!accumulate) {
      pass.backward(c, c.scale(), pass.dqkv);
      return values(pass.dqkv);
    }
    const Tensor sum = normal(pass.dqkv.shape(), gradient, stream, 3);
    pass.backward(c, c.scale(), add_to(sum));
    return values(sum);
  };
  // A cpu that multiplies bf16 rounds what it multiplies, too.
  const bool rounds =
      t == DType::bf16 && this_processor(/*threads=*/1).bf16_products != Bf16Products::as_f32;
  expect_as_on_cpu(dqkv, rounds ? 2 * tolerance(t) : tolerance(t));
}

TEST_F(CudaAttention, BackwardMatchesTheCpu) {
  for (const AttentionCase& c : cases) {
    for (const Mask mask : enumerators<Mask>()) {
      for (const DType t : cuda_types) expect_backward(c.with(mask), t, t, /*accumulate=*/false);
    }
  }
}

TEST_F(CudaAttention, SeesKeysFromTheFirstOn) {
  for (const AttentionCase& c : {AttentionCase{2, 150, 2, 1, 5, Mask::causal, 11},
                                 {1, 130, 2, 2, 64, Mask::causal, 64},
                                 {2, 70, 1, 1, 80, Mask::causal, AttentionCase::any_first}}) {
    for (const DType t : cuda_types) {
      expect_forward(c, t);
      expect_backward(c, t, t, /*accumulate=*/false);
    }
  }
}

TEST_F(CudaAttention, BackwardAddsToAGradientOfEitherType) {
  for (const AttentionCase& c : {AttentionCase{1, 37, 4, 2, 8}, AttentionCase{1, 37, 2, 2, 7},
                                 AttentionCase{1, 37, 4, 2, 8, Mask::none}}) {
    expect_backward(c, DType::f32, DType::f32, /*accumulate=*/true);
    expect_backward(c, DType::bf16, DType::bf16, /*accumulate=*/true);
    expect_backward(c, DType::bf16, DType::f32, /*accumulate=*/true);
    expect_backward(c, DType::bf16, DType::f32, /*accumulate=*/false);
  }
}

// A slice of a batch with odd extents, so that nothing is aligned.
TEST_F(CudaAttention, TakesASliceOfABatch) {
  const AttentionCase all{3, 9, 3, 3, 5}, one{1, 9, 3, 3, 5};
  for (const DType t : cuda_types) {
    const auto stream = cuda_stream();
    const Pass whole(all, t, t, *stream);
    whole.forward(all, all.scale());
    whole.backward(all, all.scale(), whole.dqkv);
    Pass slice(all, t, t, *stream);
    for (Tensor* x : {&slice.qkv, &slice.y, &slice.lse, &slice.dy, &slice.dqkv}) {
      *x = x->slice({1, 2});
    }
    slice.forward(one, one.scale());
    slice.backward(one, one.scale(), slice.dqkv);
    EXPECT_EQ(values(slice.y), values(whole.y.slice({1, 2})));
    EXPECT_EQ(values(slice.dqkv), values(whole.dqkv.slice({1, 2})));
  }
}

// Scores of both signs, about 1e4.  Whole numbers, so that f32 holds them exactly.
TEST_F(CudaAttention, LargeScoresDoNotOverflow) {
  const AttentionCase c{1, 70, 2, 1, 8};
  const auto work = [=](Stream& stream) {
    const Pass pass(c, DType::f32, DType::f32, stream);
    const Numbers some = values(pass.qkv);
    std::vector<float> large(some.begin(), some.end());
    for (float& x : large) x = std::round(40 * x);
    write<float>(pass.qkv, large);
    pass.forward(c, 1);
    return values(pass.y);
  };
  expect_as_on_cpu(work, 1e-5);
}

// Where the last tile of keys is not full, its missing keys have no part in the sums, however small
// the scores of the others are.
TEST_F(CudaAttention, WithoutAMaskTheMissingKeysOfATileHaveNoWeight) {
  const AttentionCase c{1, 65, 1, 1, 8, Mask::none};
  const auto work = [=](Stream& stream) {
    const Pass pass(c, DType::f32, DType::f32, stream);
    const Numbers some = values(pass.qkv);
    std::vector<float> all(some.begin(), some.end());
    for (size_t i = 0; i < all.size(); i += 24) all[i] = 100, all[i + 8] = -100;
    write<float>(pass.qkv, all);
    pass.forward(c, c.scale());
    pass.backward(c, c.scale(), pass.dqkv);
    Numbers numbers = values(pass.y);
    append(numbers, pass.dqkv);
    return numbers;
  };
  expect_as_on_cpu(work, 1e-3);
}

TEST_F(CudaAttention, RefusesLongHeadsAndWrongHeadCounts) {
  const auto stream = cuda_stream();
  const AttentionCase c{1, 2, 1, 1, 257};
  const Pass pass(c, DType::f32, DType::f32, *stream);
  expect_error(ErrorKind::invalid, {"attention", "257"}, [&] { pass.forward(c, c.scale()); });
  const Pass other({1, 2, 3, 1, 4}, DType::f32, DType::f32, *stream);
  const auto wrong = [&] {
    launch(
        AttentionForward{
            .y = other.y, .lse = other.lse, .qkv = other.qkv, .heads = {.query = 2, .key = 2}},
        *stream);
  };
  expect_error(ErrorKind::invalid, {"2 query heads and 2 key heads"}, wrong);
}

// The T x T scores never exist at once.
TEST_F(CudaAttention, WorkspaceIsOneNumberPerQueryAndHead) {
  MetaStream meta(Machine{});
  const Tensor qkv({{2, 100, 8 * 6}}, meta), y({{2, 100, 4 * 6}}, meta), lse({{2, 4, 100}}, meta);
  const Heads heads{.query = 4, .key = 2};
  AttentionBackward k{.dqkv = Grad(qkv), .dy = y, .qkv = qkv, .y = y, .lse = lse, .heads = heads};
  const CudaArchitecture without{.fused_attention = false};
  EXPECT_EQ(workspace_bytes(k, without), 2u * 4 * 100 * sizeof(float));
  k.dqkv = {};
  EXPECT_EQ(workspace_bytes(k, without), 0u);
}

}  // namespace
}  // namespace spool::testing
