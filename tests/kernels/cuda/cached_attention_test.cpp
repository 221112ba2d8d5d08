// runs: threads
// CachedAttention on cuda.

#include "tests/kernels/cached_attention_testing.h"
#include "tests/kernels/cuda_testing.h"

#if SPOOL_CUDA
#include "spool/kernels/cuda/attention.cuh"
#include "spool/kernels/cuda/tensor_attention.cuh"
#endif

namespace spool::testing {
namespace {

class CudaCachedAttention : public OnCuda {};

struct Case {
  int64_t B, H, Hkv, D;
  int64_t P;

  Heads heads() const { return {.query = H, .key = Hkv}; }
  int64_t packed() const { return (H + 2 * Hkv) * D; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << "B " << c.B << " H " << c.H << " Hkv " << c.Hkv << " D " << c.D << " P " << c.P;
  }
};

// Reads a text in steps of some tokens, into a cache of NaN.
Numbers read_text(const Case& c, DType t, const std::vector<int64_t>& steps, Stream& stream) {
  const Tensor keys = unset({c.B, c.Hkv, c.P, c.D}, t, stream);
  const Tensor all_values = unset({c.B, c.Hkv, c.P, c.D}, t, stream);
  Numbers found;
  int64_t position = 0;
  for (const int64_t n : steps) {
    const Tensor qkv =
        normal({c.B, n, c.packed()}, t, stream, 10 + static_cast<uint64_t>(position));
    append(found, attend(keys, all_values, qkv, c.heads(), position, c.scale()));
    position += n;
  }
  // The cache has the tokens read so far, and nothing beyond.
  for (const Tensor& cache : {keys, all_values}) {
    const Numbers rows = values(cache);
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool written = static_cast<int64_t>(i) / c.D % c.P < position;
      EXPECT_EQ(std::isnan(rows[i]), !written) << i;
      if (written) found.push_back(rows[i]);
    }
  }
  return found;
}

void expect_text(const Case& c, const std::vector<int64_t>& steps,
                 const std::vector<DType>& types = cuda_types) {
  for (const DType t : types) {
    SCOPED_TRACE(sentence(c, ", ", name(t), ", ", steps.size(), " steps"));
    expect_as_on_cpu([&](Stream& stream) { return read_text(c, t, steps, stream); }, tolerance(t));
  }
}

// Heads of each size that has kernels, loaded in packs and one by one; a query alone, and one that
// shares its keys with others of its group.
TEST_F(CudaCachedAttention, OneTokenAtATimeMatchesTheCpu) {
  for (const Case& c : {Case{1, 1, 1, 1, 3}, Case{2, 3, 3, 5, 4}, Case{1, 4, 1, 8, 5},
                        Case{1, 2, 2, 64, 3}, Case{1, 6, 1, 100, 3}, Case{2, 2, 1, 128, 3},
                        Case{1, 1, 1, 201, 3}, Case{1, 2, 1, 256, 3}}) {
    expect_text(c, std::vector<int64_t>(static_cast<size_t>(c.P), 1));
  }
}

// Up to 15 queries have one kernel, more have another; tiles have 64, 32 or 16 rows, pieces 64.
TEST_F(CudaCachedAttention, SomeTokensAtATimeMatchTheCpu) {
  const std::vector<int64_t> steps{3, 16, 45, 1, 15, 66, 7};
  expect_text({1, 2, 1, 8, 153}, steps);
  expect_text({1, 1, 1, 3, 154}, steps);
  expect_text({2, 2, 1, 6, 41}, {20, 3, 17});
  expect_text({1, 1, 1, 72, 60}, {20, 4, 17, 1});
  expect_text({1, 2, 1, 136, 60}, {20, 4, 17, 1});
}

// Attention of n tokens at a position of a text whose cache is full.
Numbers attend_at(const Case& c, DType t, int64_t position, int64_t n, Stream& stream,
                  double deviation = 1) {
  const Tensor keys = normal({c.B, c.Hkv, c.P, c.D}, t, stream, 1, deviation);
  const Tensor all_values = normal({c.B, c.Hkv, c.P, c.D}, t, stream, 2);
  const Tensor qkv = normal({c.B, n, c.packed()}, t, stream, 3, deviation);
  return values(attend(keys, all_values, qkv, c.heads(), position, c.scale()));
}

// Pieces have 64 keys, or more for a long text: here 128 and 512.  Fewer positions and heads than
// nightly, as the emulated device is slow with this many keys.
TEST_F(CudaCachedAttention, ALongTextIsCutIntoPieces) {
  std::vector<int64_t> positions{63, 64, 1000};
  if (nightly()) positions = {62, 63, 64, 65, 1000, 1099};
  const Case longest = nightly() ? Case{1, 2, 1, 8, 40000} : Case{1, 1, 1, 1, 40000};
  for (const DType t : cuda_types) {
    for (const int64_t position : positions) {
      const auto work = [=](Stream& stream) {
        return attend_at({1, 2, 2, 64, 1100}, t, position, 1, stream);
      };
      expect_as_on_cpu(work, tolerance(t));
    }
    for (const int64_t position : {127, 4097}) {
      const auto work = [=](Stream& stream) {
        return attend_at({1, 3, 1, 10, 4200}, t, position, 2, stream);
      };
      expect_as_on_cpu(work, tolerance(t));
    }
    const auto work = [=](Stream& stream) { return attend_at(longest, t, 39999, 1, stream); };
    expect_as_on_cpu(work, tolerance(t));
  }
}

TEST_F(CudaCachedAttention, TextsPaddedAtTheLeftMatchTheCpu) {
  for (const DType t : cuda_types) {
    for (const std::vector<int64_t>& steps :
         {std::vector<int64_t>{41, 1, 1}, {5, 30, 8}, {1, 2, 30, 1, 9}}) {
      expect_as_on_cpu(
          [&](Stream& stream) {
            return PaddedTexts({3, 43, 20, 2}, t, stream).read(steps, /*alone=*/false);
          },
          tolerance(t));
    }
  }
}

// One piece or several, while there might be more.
TEST_F(CudaCachedAttention, APlaceOnTheDeviceHasTheBitsOfAPosition) {
  const Heads heads{.query = 4, .key = 2};
  const Shape cache{2, 2, 200, 8};
  for (const DType t : cuda_types) {
    for (const int64_t position : {0, 1, 62, 63, 64, 130, 199}) {
      const auto at = [&](int64_t where, std::optional<int64_t> most) {
        return attend_at_place(cache, heads, t, where, most, *cuda_stream());
      };
      const Numbers wanted = at(position, {});
      for (const int64_t most : {position, int64_t{199}}) EXPECT_EQ(at(position, most), wanted);
    }
    // Nothing outside of the cache is read or written.
    const auto stream = cuda_stream();
    const Numbers last = attend_at_place(cache, heads, t, 199, {}, *stream);
    const Numbers first = attend_at_place(cache, heads, t, 0, {}, *stream);
    EXPECT_EQ(attend_at_place(cache, heads, t, 5000, 199, *stream), last);
    EXPECT_EQ(attend_at_place(cache, heads, t, -1, 199, *stream), first);
  }
}

TEST_F(CudaCachedAttention, LargeScoresDoNotOverflow) {
  const auto work = [](Stream& stream) {
    return attend_at({1, 2, 2, 8, 150}, DType::f32, 149, 1, stream, 100);
  };
  expect_as_on_cpu(work, 1e-4);
}

TEST_F(CudaCachedAttention, ItsMemoryDependsOnShapesAlone) {
  for (const int64_t n : {1, 64}) {
    const auto peak = [&](size_t bytes, int64_t position) {
      return attention_peak(n, position, *cuda_stream(bytes));
    };
    const size_t enough = peak(on_both, 0);
    for (const int64_t position : {3, 436}) EXPECT_EQ(peak(enough, position), enough);
  }
}

// In bf16 a prompt is read on tensor cores, in tiles of 128 queries, and 64 or 32 keys: heads of
// each size that has kernels and between them, lengths on, below and above the tiles, a query left
// over, one key head for many.
TEST_F(CudaCachedAttention, PromptsOnTensorCoresMatchTheCpu) {
  const std::vector<std::pair<Case, std::vector<int64_t>>> texts{
      {{1, 1, 1, 16, 64}, {64}},
      {{1, 32, 1, 16, 50}, {17, 1, 31}},
      {{2, 4, 2, 32, 260}, {129, 1, 127}},
      {{1, 2, 1, 64, 150}, {16, 64, 3, 65}},
      {{1, 2, 2, 80, 70}, {33, 37}},
      {{2, 1, 1, 96, 60}, {31, 29}},
      {{1, 2, 1, 128, 200}, {63, 1, 1, 130}}};
  for (const auto& [c, steps] : texts) expect_text(c, steps, {DType::bf16});
}

// Texts that begin in the first tile of keys, in a later one, with the last query, and after it.
TEST_F(CudaCachedAttention, PaddedPromptsOnTensorCoresMatchTheCpu) {
  const std::vector<int32_t> firsts{0, 5, 64, 150, 229, 230, 500};
  const auto B = static_cast<int64_t>(firsts.size());
  const std::pair<int64_t, int64_t> cases[]{{32, 0}, {128, 70}, {64, 213}};
  for (const auto& [head_size, start] : cases) {
    const auto work = [&, D = head_size, position = start](Stream& stream) {
      const DType t = DType::bf16;
      const Tensor keys = normal({B, 1, 240, D}, t, stream, 1),
                   all_values = normal({B, 1, 240, D}, t, stream, 2),
                   qkv = normal({B, 230 - position, 4 * D}, t, stream, 3);
      return values(attend(keys, all_values, qkv, {.query = 2, .key = 1}, position, 0.2,
                           integers({B}, firsts, stream)));
    };
    expect_as_on_cpu(work, tolerance(DType::bf16));
  }
}

TEST_F(CudaCachedAttention, ATextThatBeginsBeforeThePromptBeginsWithIt) {
  const auto stream = cuda_stream();
  const auto read = [&](const std::vector<int32_t>& first) {
    const Tensor keys = unset({1, 1, 40, 32}, DType::bf16, *stream),
                 all_values = unset({1, 1, 40, 32}, DType::bf16, *stream),
                 qkv = normal({1, 40, 3 * 32}, DType::bf16, *stream, 3);
    return values(attend(keys, all_values, qkv, {}, 0, 0.2, integers({1}, first, *stream)));
  };
  EXPECT_EQ(read({-3}), read({0}));
}

#if SPOOL_CUDA

// y of a text that is read in these steps.
Numbers prompt(const Tensor& qkv, const Heads& heads, double scale,
               const std::vector<int64_t>& steps) {
  const int64_t n = qkv.shape()[0], D = qkv.shape().row() / (heads.query + 2 * heads.key);
  const Shape cache{1, heads.key, n, D};
  const Tensor keys = unset(cache, qkv.dtype(), qkv.stream()),
               all_values = unset(cache, qkv.dtype(), qkv.stream());
  Numbers found;
  int64_t position = 0;
  for (const int64_t step : steps) {
    const Tensor rows({{1, step, qkv.shape().row()}, qkv.dtype()}, qkv.stream());
    launch(Add{.out = rows, .a = qkv.slice({position, position + step})}, qkv.stream());
    append(found, attend(keys, all_values, rows, heads, position, scale));
    position += step;
  }
  return found;
}

// The bits of y are those of attention without a cache on tensor cores, however the prompt is cut;
// of another size of head, those of the kernel without tensor cores.
TEST_F(CudaCachedAttention, AnyStepsOfAPromptHaveTheBitsOfAWholeText) {
  const Heads heads{.query = 4, .key = 2};
  for (const int64_t D : {24, 32, 64, 112}) {
    const auto stream = cuda_stream();
    auto& cuda = static_cast<CudaStream&>(*stream);
    const int64_t n = 183;
    const Tensor qkv = normal({n, 8 * D}, DType::bf16, *stream, 1);
    const Tensor y = unset({1, n, 4 * D}, DType::bf16, *stream),
                 lse = unset({1, 4, n}, DType::f32, *stream);
    const AttentionForward k{
        .y = y, .lse = lse, .qkv = qkv.reshape({1, n, 8 * D}), .heads = heads, .scale = 0.3};
    D == 24 ? cuda::attention_forward(k, cuda) : cuda::tensor_attention_forward(k, cuda);
    const Numbers whole = values(y);
    EXPECT_EQ(prompt(qkv, heads, 0.3, {n}), whole) << D;
    if (D != 24) {
      EXPECT_EQ(prompt(qkv, heads, 0.3, {16, 150, 17}), whole) << D;
    }
  }
}

#endif

TEST_F(CudaCachedAttention, RefusesALongHead) {
  const auto stream = cuda_stream();
  const auto work = [&] { read_text({1, 1, 1, 300, 2}, DType::f32, {1}, *stream); };
  expect_error(ErrorKind::invalid, {"attention", "300"}, work);
}

}  // namespace
}  // namespace spool::testing
