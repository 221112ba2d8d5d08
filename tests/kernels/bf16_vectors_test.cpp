// The kernels that take bf16 in vectors on the cpu: every value, every length, every place of a
// slice, and what stays of NaN and infinity.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "spool/kernels/cpu/scalar.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/gelu.h"
#include "spool/kernels/reduce.h"
#include "spool/runtime/integer.h"
#include "tests/kernels/adamw_testing.h"
#include "tests/kernels/layer_norm_testing.h"

namespace spool::testing {
namespace {

using Bits = std::vector<uint16_t>;

Bits bits(const Tensor& t) {
  t.stream().synchronize();
  const auto* all = View(t).as<uint16_t>();
  return {all, all + t.numel()};
}

Tensor of_bits(const Bits& all, Stream& stream) {
  Tensor t({{static_cast<int64_t>(all.size())}, DType::bf16}, stream);
  stream.synchronize();
  std::memcpy(View(t).as<uint16_t>(), all.data(), sizeof(uint16_t) * all.size());
  return t;
}

Bits every_bf16() {
  Bits all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

// The formulas of Tanh in kernels/cpu/gelu.cpp, one value at a time.
float cdf(float x) {
  const float root = 1.5957691216057307f, cubic = 0.044715f;
  return 1 / (1 + cpu::exp(-root * (x + cubic * x * x * x)));
}
float slope(float x) {
  const float root = 1.5957691216057307f, cubic = 0.044715f, y = cdf(x);
  return y + x * (y * (1 - y) * root * (1 + 3 * cubic * x * x));
}

float value_of(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

// Whether it is the rounding of the number; otherwise the number must be so close to halfway
// between two of bf16 that the compiler's choice of fused operations decides.  Which NaN it is, or
// which 0, does not matter.
bool has_bits(uint16_t is, float wanted, uint16_t x) {
  if (std::isnan(wanted)) return std::isnan(value_of(is));
  if (value_of(is) == bf16(wanted)) return true;
  const float less = wanted * (1 - 1e-6f), more = wanted * (1 + 1e-6f);
  EXPECT_TRUE(is == bf16(less).bits || is == bf16(more).bits)
      << value_of(x) << ": " << value_of(is) << ", not " << wanted;
  return false;
}

TEST(Bf16Vectors, GeluOfEveryValueIsThatOfTheScalarFormula) {
  CpuStream stream(64 << 20, 2);
  const Bits all = every_bf16();
  const Tensor x = of_bits(all, stream), y = unset(x.shape(), DType::bf16, stream);
  const Tensor one = unset(x.shape(), DType::bf16, stream),
               dx = unset(x.shape(), DType::bf16, stream);
  launch(Fill{.out = one, .value = 1}, stream);
  launch(GeluForward{.y = y, .x = x}, stream);
  launch(GeluBackward{.dx = dx, .dy = one, .x = x}, stream);
  const Bits value = bits(y), gradient = bits(dx);
  int others = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const float at = value_of(all[i]);
    others += !has_bits(value[i], at * cdf(at), all[i]);
    others += !has_bits(gradient[i], slope(at), all[i]);
  }
  EXPECT_LE(others, 2);  // of 131,072
}

TEST(Bf16Vectors, GeluHasTheSameBitsForEveryLengthAndPlace) {
  CpuStream stream(64 << 20, 2);
  constexpr int64_t N = 300;
  const Tensor x = normal({N, 1}, DType::bf16, stream, 1, 3),
               dy = normal({N, 1}, DType::bf16, stream, 2);
  const Tensor y = unset(x.shape(), DType::bf16, stream),
               dx = unset(x.shape(), DType::bf16, stream);
  launch(GeluForward{.y = y, .x = x}, stream);
  launch(GeluBackward{.dx = dx, .dy = dy, .x = x}, stream);
  const Numbers whole_y = values(y), whole_dx = values(dx);
  for (int64_t length = 1; length <= 100; ++length) {
    const int64_t first = 2 * length % 97 + 1;
    const Tensor part_y = unset(x.shape(), DType::bf16, stream);
    const Tensor part_dx = unset(x.shape(), DType::bf16, stream);
    const Range rows{first, first + length};
    launch(GeluForward{.y = part_y.slice(rows), .x = x.slice(rows)}, stream);
    launch(GeluBackward{.dx = part_dx.slice(rows), .dy = dy.slice(rows), .x = x.slice(rows)},
           stream);
    const Numbers is_y = values(part_y), is_dx = values(part_dx);
    for (int64_t i = 0; i < N; ++i) {
      const bool inside = i >= rows.begin && i < rows.end;
      ASSERT_EQ(std::isnan(at(is_y, i)), !inside) << length << " at " << i;
      ASSERT_EQ(std::isnan(at(is_dx, i)), !inside) << length << " at " << i;
      if (!inside) continue;
      ASSERT_EQ(at(is_y, i), at(whole_y, i));
      ASSERT_EQ(at(is_dx, i), at(whole_dx, i));
    }
  }
}

// Sums of columns in the order of the rows, of gradients that are rounded only where they are
// stored.
TEST(Bf16Vectors, GeluWithABiasOfEveryWidth) {
  CpuStream stream(64 << 20, 2);
  for (const int64_t C : {1, 31, 32, 33, 77, 100}) {
    for (const int64_t N : {1, 3, 4, 9}) {
      const Tensor x = normal({N, C}, DType::bf16, stream, 1),
                   dy = normal({N, C}, DType::bf16, stream, 2);
      const Tensor bias = normal({C}, DType::bf16, stream, 3);
      const Numbers from = values(x), out = values(dy), more = values(bias);
      Numbers wanted(from.size()), sums(more.size());
      for (size_t i = 0; i < from.size(); ++i) {
        const size_t c = i % more.size();
        wanted[i] = out[i] * double{slope(float(from[i] + more[c]))};
        sums[c] += wanted[i];
      }
      for (const DType t : {DType::bf16, DType::f32}) {
        expect_gradient({{N, C}, t}, stream, wanted, [&](const Grad& dx) {
          launch(GeluBackward{.dx = dx, .dy = dy, .x = x, .bias = bias}, stream);
        });
        expect_gradient({{C}, t}, stream, sums, [&](const Grad& dbias) {
          launch(GeluBackward{.dx = {}, .dy = dy, .x = x, .bias = bias, .dbias = dbias}, stream);
        });
      }
    }
  }
}

TEST(Bf16Vectors, GeluAddsTheSameBitsWhetherTheBiasLearnsOrNot) {
  CpuStream stream(64 << 20, 2);
  constexpr int64_t N = 64, C = 77;
  const Tensor x = normal({N, C}, DType::bf16, stream, 1),
               dy = normal({N, C}, DType::bf16, stream, 2),
               bias = normal({C}, DType::bf16, stream, 3);
  for (const DType t : {DType::f32, DType::bf16}) {
    const Tensor alone = normal({N, C}, t, stream, 4), beside = normal({N, C}, t, stream, 4);
    const Tensor dbias({{C}, t}, stream);
    launch(GeluBackward{.dx = Grad(alone, true), .dy = dy, .x = x, .bias = bias}, stream);
    launch(GeluBackward{.dx = Grad(beside, true), .dy = dy, .x = x, .bias = bias, .dbias = dbias},
           stream);
    EXPECT_EQ(values(alone), values(beside));
  }
}

struct Entropy {
  Numbers losses, gradient;
};

Entropy entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options,
                Range rows, Stream& stream) {
  const Tensor copy({{rows.size(), logits.shape().row()}, DType::bf16}, stream);
  launch(Cast{.out = copy, .in = logits.slice(rows)}, stream);
  const Tensor losses = unset({rows.size()}, DType::f32, stream);
  launch(CrossEntropy{.logits = copy,
                      .targets = targets.slice(rows),
                      .losses = losses,
                      .gradient = true,
                      .options = options},
         stream);
  return {values(losses), values(copy)};
}

void expect_close(const Entropy& all, const Numbers& z, const std::vector<int32_t>& targets,
                  const CrossEntropyOptions& o, int64_t columns) {
  const int64_t V = o.vocabulary;
  for (size_t n = 0; n < targets.size(); ++n) {
    const auto row = static_cast<int64_t>(n) * columns;
    const bool ignored = targets[n] == o.ignore_index;
    double sum = 0, mean = 0;
    for (int64_t v = 0; v < V; ++v)
      sum += std::exp(at(z, row + v)), mean += at(z, row + v) / double(V);
    const double lse = std::log(sum), e = o.label_smoothing;
    const double target = ignored ? 0 : at(z, row + targets[n]);
    const double loss = lse - (1 - e) * target - e * mean + o.z_loss * lse * lse;
    EXPECT_NEAR(all.losses[n], ignored ? 0 : loss, 2e-5 * std::fabs(loss));
    for (int64_t v = 0; v < columns; ++v) {
      double d = std::exp(at(z, row + v)) / sum * (1 + 2 * o.z_loss * lse) - e / double(V);
      if (v == targets[n]) d -= 1 - e;
      if (v >= V || ignored) d = 0;
      EXPECT_NEAR(at(all.gradient, row + v), d, 4e-3 * std::fabs(d) + 1e-7) << v;
    }
  }
}

TEST(Bf16Vectors, CrossEntropyOfOddVocabulariesPaddingAndIgnoredTargets) {
  CpuStream stream(64 << 20, 2);
  for (const int64_t V : {1, 5, 32, 127, 128, 131, 1001}) {
    for (const auto& [smoothing, z_loss] : {std::pair{0.0f, 0.0f}, {0.1f, 0.0f}, {0.1f, 0.01f}}) {
      const int64_t N = 7, columns = V + V % 3;
      const CrossEntropyOptions o{.vocabulary = V, .label_smoothing = smoothing, .z_loss = z_loss};
      const Tensor logits = normal({N, columns}, DType::bf16, stream, 1, 4);
      std::vector<int32_t> of;
      for (int32_t n = 0; n < N; ++n)
        of.push_back(n == 3 ? -100 : n * 37 % static_cast<int32_t>(V));
      const Tensor targets = integers({N}, of, stream);
      const Entropy whole = entropy(logits, targets, o, {0, N}, stream);
      expect_close(whole, values(logits), of, o, columns);
      Entropy slices;
      for (const Range rows : {Range{0, 1}, Range{1, 4}, Range{4, N}}) {
        const Entropy part = entropy(logits, targets, o, rows, stream);
        slices.losses.insert(slices.losses.end(), part.losses.begin(), part.losses.end());
        slices.gradient.insert(slices.gradient.end(), part.gradient.begin(), part.gradient.end());
      }
      EXPECT_EQ(slices.losses, whole.losses);
      EXPECT_EQ(slices.gradient, whole.gradient);
    }
  }
}

// A masked logit has no probability, +infinity and NaN leave NaN in their row and in no other.
TEST(Bf16Vectors, CrossEntropyOfInfinityAndNaN) {
  CpuStream stream(64 << 20, 2);
  const int64_t V = 45;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> z(4 * V, 1.0f);
  z[5] = -infinity, z[V + 40] = infinity, z[2 * V + 3] = std::nanf(""), z[2 * V + 1] = 3e4f;
  const Tensor exact = make_tensor<float>({4, V}, z, stream);
  const Tensor logits({{4, V}, DType::bf16}, stream);
  launch(Cast{.out = logits, .in = exact}, stream);
  const Tensor targets = integers({4}, {0, 0, 0, 0}, stream);
  const Entropy all = entropy(logits, targets, {.vocabulary = V}, {0, 4}, stream);
  EXPECT_EQ(all.gradient[5], 0);
  EXPECT_NEAR(all.losses[0], std::log(44.0), 1e-5);
  EXPECT_TRUE(std::isnan(all.losses[1]) && std::isnan(all.losses[2]));
  for (int64_t v = 0; v < V; ++v) {
    EXPECT_TRUE(std::isnan(at(all.gradient, V + v))) << v;
    EXPECT_TRUE(std::isnan(at(all.gradient, 2 * V + v))) << v;
    EXPECT_FALSE(std::isnan(at(all.gradient, v)) || std::isnan(at(all.gradient, 3 * V + v))) << v;
  }
}

Numbers layer_norm_dx(const LayerNormInputs& in, const LayerNormOutputs& out, Range rows,
                      Stream& stream) {
  const Tensor dx = unset({rows.size(), in.x.shape().row()}, DType::bf16, stream);
  LayerNormBackward k = layer_norm_backward(in, out);
  k.dx = dx;
  k.dy = in.dy.slice(rows);
  k.x = in.x.slice(rows);
  k.mean = out.mean.slice(rows);
  k.rstd = out.rstd.slice(rows);
  launch(k, stream);
  return values(dx);
}

// Sums in f64 of what the kernel reads.
struct NormReference {
  Numbers dx, dweight, dbias;

  NormReference(const LayerNormInputs& in, const LayerNormOutputs& out) {
    const int64_t N = in.x.shape()[0], C = in.x.shape()[1];
    const Numbers x = values(in.x), w = values(in.weight), dy = values(in.dy);
    const Numbers mean = values(out.mean), rstd = values(out.rstd);
    dweight.resize(w.size()), dbias.resize(w.size());
    for (int64_t n = 0; n < N; ++n) {
      const auto h = [&](int64_t c) { return (at(x, n * C + c) - at(mean, n)) * at(rstd, n); };
      const auto g = [&](int64_t c) { return at(dy, n * C + c) * at(w, c); };
      double of_g = 0, of_gh = 0;
      for (int64_t c = 0; c < C; ++c) {
        of_g += g(c) / double(C), of_gh += g(c) * h(c) / double(C);
        dweight[static_cast<size_t>(c)] += at(dy, n * C + c) * h(c);
        dbias[static_cast<size_t>(c)] += at(dy, n * C + c);
      }
      for (int64_t c = 0; c < C; ++c) dx.push_back(at(rstd, n) * (g(c) - of_g - h(c) * of_gh));
    }
  }
};

TEST(Bf16Vectors, LayerNormBackwardOfOddWidthsAndAnyRows) {
  CpuStream stream(64 << 20, 2);
  for (const int64_t C : {3, 32, 45, 100, 133}) {
    for (int64_t N = 1; N <= 9; ++N) {
      const LayerNormInputs in{.x = normal({N, C}, DType::bf16, stream, 1, 2),
                               .weight = normal({C}, DType::bf16, stream, 2),
                               .bias = normal({C}, DType::bf16, stream, 3),
                               .dy = normal({N, C}, DType::bf16, stream, 4)};
      const LayerNormOutputs out(in, stream);
      const NormReference wanted(in, out);
      const auto expect = [&](const Shape& shape, const Numbers& numbers, auto member) {
        for (const DType t : {DType::bf16, DType::f32}) {
          if (t == DType::f32 && shape.rank() == 2) continue;  // dx has the type of x
          expect_gradient({shape, t}, stream, numbers, [&](const Grad& gradient) {
            LayerNormBackward k = layer_norm_backward(in, out);
            k.*member = gradient;
            launch(k, stream);
          });
        }
      };
      expect({N, C}, wanted.dx, &LayerNormBackward::dx);
      expect({C}, wanted.dweight, &LayerNormBackward::dweight);
      expect({C}, wanted.dbias, &LayerNormBackward::dbias);
      const Numbers whole = layer_norm_dx(in, out, {0, N}, stream);
      for (int64_t n = 0; n < N; ++n) {
        const Numbers row = layer_norm_dx(in, out, {n, n + 1}, stream);
        EXPECT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + n * C)) << n << " of " << N;
      }
    }
  }
}

// The order of the sum: 32 lanes, added by halves.
double squares(const Numbers& x, int64_t begin, int64_t end) {
  double lane[32] = {};
  for (int64_t i = begin; i < end; ++i) lane[(i - begin) % 32] += at(x, i) * at(x, i);
  for (int width = 16; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lane[j] += lane[j + width];
  }
  return lane[0];
}

TEST(Bf16Vectors, SquaredNormKeepsItsOrder) {
  CpuStream stream(64 << 20, 2);
  std::vector<int64_t> lengths{2048, 2049, 5000};
  for (int64_t n = 1; n <= 100; ++n) lengths.push_back(n);
  for (const int64_t n : lengths) {
    const Tensor all = normal({n + 1, 1}, DType::bf16, stream, 5), x = all.slice({1, n + 1});
    const Tensor out = unset({ceil_div(n, norm_granule)}, DType::f64, stream);
    launch(SquaredNorm{.out = out, .x = {x}}, stream);
    const Numbers from = values(x), is = values(out);
    for (int64_t g = 0; g < out.numel(); ++g) {
      EXPECT_EQ(at(is, g), squares(from, g * norm_granule, std::min(n, (g + 1) * norm_granule)));
    }
  }
}

// Lines are written whole only between the first and the last whole one of a parameter.
TEST(Bf16Vectors, OptimizersRoundMastersWhereverAParameterBegins) {
  CpuStream stream(64 << 20, 2);
  for (const int64_t skip : {0, 1, 7, 31, 32, 33}) {
    const AdamWCase c{.numels = {1, 40, 2048, 2049, 20011},
                      .type = DType::bf16,
                      .gradient = DType::bf16,
                      .skip = skip};
    const AdamWTensors whole(c, stream), sliced(c, stream);
    launch(whole.kernel(), stream);
    launch(in_slices(sliced.kernel(), 2048), stream);
    EXPECT_EQ(whole.everything(), sliced.everything());
    const AdamW k = whole.kernel();
    stream.synchronize();
    for (const AdamW::Entry& t : k.tensors) {
      for (int64_t i = 0; i < t.master.numel(); ++i) {
        ASSERT_EQ(t.parameter.as<uint16_t>()[i], bf16(t.master.as<float>()[i]).bits) << i;
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
