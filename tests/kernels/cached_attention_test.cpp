// runs: threads
// Attention over a cache against attention of the whole text at once.

#include "spool/kernels/cached_attention.h"

#include "spool/kernels/attention.h"
#include "tests/kernels/cached_attention_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;

struct Case {
  int64_t B, T, H, Hkv, D;
  int64_t P;

  Heads heads() const { return {.query = H, .key = Hkv}; }
  int64_t packed() const { return (H + 2 * Hkv) * D; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  friend std::ostream& operator<<(std::ostream& out, const Case& c) {
    return out << "B " << c.B << " T " << c.T << " H " << c.H << " Hkv " << c.Hkv << " D " << c.D;
  }
};

// A tile has 96 rows, a block 6, a vector up to 64 bytes: on, below and above each of these.
const Case cases[] = {{1, 1, 1, 1, 1, 1},      {2, 40, 3, 1, 5, 50},    {1, 100, 2, 2, 64, 100},
                      {1, 130, 4, 2, 80, 131}, {2, 210, 6, 2, 16, 300}, {1, 230, 2, 1, 129, 256}};

// Rows [begin, end) of each sequence of (B, T, row).
Numbers rows_of(const Numbers& all, const Case& c, int64_t row, Range rows) {
  Numbers some;
  for (int64_t b = 0; b < c.B; ++b) {
    const auto first = all.begin() + (b * c.T + rows.begin) * row;
    some.insert(some.end(), first, first + rows.size() * row);
  }
  return some;
}

Tensor tensor_of(const Numbers& all, const Shape& shape, DType type, Stream& stream) {
  if (type == DType::f64) return make_tensor<double>(shape, all, stream);
  const std::vector<float> f32(all.begin(), all.end());
  if (type == DType::f32) return make_tensor<float>(shape, f32, stream);
  return make_tensor<bf16>(shape, std::vector<bf16>(f32.begin(), f32.end()), stream);
}

// Reads a text piece by piece, into a cache of NaN.
struct Reader {
  Case c;
  Tensor keys, values;
  int64_t position = 0;

  Reader(const Case& which, DType type, Stream& stream)
      : c(which),
        keys(unset({c.B, c.Hkv, c.P, c.D}, type, stream)),
        values(unset({c.B, c.Hkv, c.P, c.D}, type, stream)) {}

  Numbers read(const Numbers& qkv, int64_t n) {
    Stream& stream = keys.stream();
    const Range rows{position, position + n};
    const Tensor some =
        tensor_of(rows_of(qkv, c, c.packed(), rows), {c.B, n, c.packed()}, keys.dtype(), stream);
    const Tensor y = attend(keys, values, some, c.heads(), position, c.scale());
    position += n;
    return testing::values(y);
  }
};

Numbers whole(const Numbers& qkv, const Case& c, Stream& stream) {
  const Tensor packed = tensor_of(qkv, {c.B, c.T, c.packed()}, DType::f64, stream);
  const Tensor y({{c.B, c.T, c.H * c.D}, DType::f64}, stream);
  const Tensor lse({{c.B, c.H, c.T}, DType::f64}, stream);
  launch(
      AttentionForward{.y = y, .lse = lse, .qkv = packed, .heads = c.heads(), .scale = c.scale()},
      stream);
  return values(y);
}

double bound(DType t) { return t == DType::f64 ? 1e-12 : t == DType::f32 ? 2e-6 : 5e-3; }

TEST(CachedAttention, MatchesAttentionOfTheWholeInAnyPieces) {
  CpuStream stream(plenty, 2);
  for (const Case& c : cases) {
    for (const DType type : floating) {
      const Numbers qkv = values(normal({c.B, c.T, c.packed()}, type, stream, 1));
      const Numbers expected = whole(qkv, c, stream);
      for (const int64_t piece : {1, 7, 33, 97, 1000}) {
        Reader reader(c, type, stream);
        while (reader.position < c.T) {
          const int64_t first = reader.position, n = std::min(piece, c.T - first);
          const Numbers y = reader.read(qkv, n);
          const Numbers wanted = rows_of(expected, c, c.H * c.D, {first, first + n});
          EXPECT_LE(difference(y, wanted), bound(type))
              << c << ", " << name(type) << ", " << n << " from " << first;
        }
      }
    }
  }
}

TEST(CachedAttention, WritesItsKeysAndValuesAndNothingElse) {
  CpuStream stream(plenty, 2);
  const Case c = {2, 20, 4, 2, 6, 24};
  for (const DType type : floating) {
    const Numbers qkv = values(normal({c.B, c.T, c.packed()}, type, stream, 1));
    Reader reader(c, type, stream);
    for (const int64_t n : {13, 1, 6}) reader.read(qkv, n);
    const Numbers keys = values(reader.keys), all = values(reader.values);
    for (int64_t i = 0; i < reader.keys.numel(); ++i) {
      const int64_t d = i % c.D, t = i / c.D % c.P, kv = i / c.D / c.P % c.Hkv;
      const int64_t b = i / c.D / c.P / c.Hkv;
      if (t >= c.T) {
        EXPECT_TRUE(std::isnan(at(keys, i)) && std::isnan(at(all, i)));
        continue;
      }
      const int64_t token = (b * c.T + t) * c.packed() + d;
      EXPECT_EQ(at(keys, i), at(qkv, token + (c.H + kv) * c.D));
      EXPECT_EQ(at(all, i), at(qkv, token + (c.H + c.Hkv + kv) * c.D));
    }
  }
}

TEST(CachedAttention, BitsDoNotDependOnTheNumberOfThreads) {
  const Case c = {2, 250, 6, 3, 32, 256};
  for (const DType type : floating) {
    expect_same_for_any_threads([&](Stream& stream) {
      const Numbers qkv = values(normal({c.B, c.T, c.packed()}, type, stream, 1));
      Reader reader(c, type, stream);
      Numbers all;
      for (const int64_t n : {100, 1, 2, 140, 7}) {
        const Numbers y = reader.read(qkv, n);
        all.insert(all.end(), y.begin(), y.end());
      }
      return all;
    });
  }
}

TEST(CachedAttention, LargeScoresDoNotOverflow) {
  CpuStream stream(plenty, 2);
  const Case c = {1, 150, 2, 2, 8, 150};
  Numbers qkv = values(normal({c.B, c.T, c.packed()}, DType::f32, stream, 1));
  for (double& x : qkv) x = std::round(60 * x);
  const Numbers expected = whole(qkv, c, stream);
  for (const int64_t piece : {1, 50}) {
    Reader reader(c, DType::f32, stream);
    while (reader.position < c.T) {
      const int64_t first = reader.position;
      const Numbers y = reader.read(qkv, piece);
      EXPECT_LE(difference(y, rows_of(expected, c, c.H * c.D, {first, first + piece})), 1e-5);
    }
  }
}

// With steps in which a text begins within one, before it, and after it; of few tokens and of many.
TEST(CachedAttention, TextsPaddedAtTheLeftAreWhatTheyAreAlone) {
  CpuStream stream(plenty, 2);
  for (const DType t : floating) {
    PaddedTexts texts({3, 43, 20, 2, 42}, t, stream);
    for (const std::vector<int64_t>& steps :
         {std::vector<int64_t>{41, 1, 1}, {5, 30, 8}, {1, 1, 2, 30, 1, 8}, {20, 20, 3}}) {
      const Numbers alone = texts.read(steps, /*alone=*/true);
      EXPECT_LE(difference(texts.read(steps, /*alone=*/false), alone), bound(t)) << name(t);
    }
  }
}

// One rehearsal holds for every position.
TEST(CachedAttention, ItsMemoryDependsOnShapesAlone) {
  for (const int64_t n : {1, 64}) {
    const auto peak = [&](size_t bytes, int64_t position) {
      CpuStream stream(bytes, 2);
      return attention_peak(n, position, stream);
    };
    const size_t enough = peak(plenty, 0);
    for (const int64_t position : {3, 436}) EXPECT_EQ(peak(enough, position), enough);
  }
}

TEST(CachedAttention, APlaceOnTheDeviceHasTheBitsOfAPosition) {
  const Heads heads{.query = 4, .key = 2};
  const Shape cache{2, 2, 40, 8};
  CpuStream stream(plenty, 2);
  for (const DType t : {DType::f32, DType::bf16, DType::f64}) {
    for (const int64_t position : {0, 7, 39}) {
      EXPECT_EQ(attend_at_place(cache, heads, t, position, 39, stream),
                attend_at_place(cache, heads, t, position, {}, stream));
    }
  }
  for (const int64_t position : {-1, 21}) {
    CpuStream refuses(plenty, 1);
    expect_error(ErrorKind::invalid, {"place", std::to_string(position), "at most 20"},
                 [&] { attend_at_place(cache, heads, DType::f32, position, 20, refuses); });
  }
  const Tensor caches = normal(cache, DType::f32, stream, 1),
               two = unset({2, 2, 64}, DType::f32, stream);
  expect_error(ErrorKind::invalid, {"2 tokens at a place"}, [&] {
    attend(caches, normal(cache, DType::f32, stream, 2), two, heads, 5, 1, {},
           integers({1}, {0}, stream));
  });
}

TEST(CachedAttention, CountsTheRowsItReads) {
  MetaStream stream(Machine{});
  const Tensor cache({{2, 3, 1000, 16}}, stream), qkv({{2, 4, 12 * 16}}, stream);
  const Tensor y({{2, 4, 6 * 16}}, stream);
  const CachedAttention k{.y = y,
                          .keys = cache,
                          .values = cache,
                          .qkv = qkv,
                          .heads = {.query = 6, .key = 3},
                          .position = 246};
  const Cost cost = k.cost();
  const double pairs = 2 * 6 * (247 + 248 + 249 + 250);
  EXPECT_DOUBLE_EQ(cost.flops, pairs * (4 * 16 + exponential_flops));
  const double rows = 2 * 3 * 250 * 16 * sizeof(float);
  EXPECT_DOUBLE_EQ(cost.bytes, static_cast<double>(y.nbytes() + qkv.nbytes()) + 2 * rows);
}

}  // namespace
}  // namespace spool::testing
