#pragma once

// Cross entropy of logits that are cut into parts of their columns, and of the same logits whole.

#include "spool/kernels/copy.h"
#include "spool/kernels/cross_entropy_part.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

inline const std::vector<CrossEntropyOptions> options_in_parts{
    {},
    {.label_smoothing = 0.1f},
    {.z_loss = 0.01f},
    {.soft_cap = 2},
    {.label_smoothing = 0.2f, .z_loss = 0.03f, .soft_cap = 3},
};

struct LossInParts {
  int64_t N = 1, V = 1;          // of (N, columns) logits V count
  std::vector<int64_t> columns;  // of each part
  CrossEntropyOptions options = {};
  int64_t upstreams = 0;  // 0: neither scale nor upstream
  DType type = DType::f32;

  int64_t all() const {
    int64_t sum = 0;
    for (const int64_t c : columns) sum += c;
    return sum;
  }
};

inline std::string in_words(const LossInParts& c) {
  std::string words = sentence(name(c.type), ' ', c.N, " x ", c.V, " of");
  for (const int64_t columns : c.columns) words += sentence(' ', columns);
  return words + sentence("; smoothing ", c.options.label_smoothing, " z ", c.options.z_loss,
                          " cap ", c.options.soft_cap, ", upstreams ", c.upstreams);
}

// The target of every third row is ignored; with N of them, the upstream of every second is what
// earlier gradients include.
struct LossSample {
  LossInParts c;
  Tensor logits, targets, losses, scale, upstream;

  LossSample(LossInParts loss, Stream& stream)
      : c(std::move(loss)), logits(normal({c.N, c.all()}, c.type, stream, 1, 2)) {
    Random random(3);
    std::vector<int32_t> ids;
    std::vector<float> factors;
    for (int64_t n = 0; n < c.N; ++n) {
      const double any = random.uniform() * static_cast<double>(c.V);
      ids.push_back(n % 3 == 2 ? -100 : static_cast<int32_t>(any));
      factors.push_back(n % 2 == 1 ? 0.75f : 2 + static_cast<float>(n));
    }
    const DType sums = accumulator(c.type);
    targets = integers({c.N}, ids, stream);
    losses = unset({c.N}, sums, stream);
    if (c.V < c.all()) c.options.vocabulary = c.V;
    if (c.upstreams == 0) return;
    factors.resize(static_cast<size_t>(c.upstreams));
    scale = normal({1}, sums, stream, 5);
    upstream = Tensor({Shape{c.upstreams}, sums}, stream);
    launch(Cast{.out = upstream, .in = make_tensor<float>({c.upstreams}, factors, stream)}, stream);
  }

  template <class Kernel>
  Kernel with_options(Kernel k) const {
    k.targets = targets;
    k.losses = losses;
    k.scale = scale;
    k.upstream = upstream;
    k.upstream_known = upstream ? 0.75f : 0;
    k.options = c.options;
    return k;
  }
};

struct LossAndGradient {
  Numbers losses, gradient;
};

inline LossAndGradient whole_loss(const LossInParts& c, Stream& stream) {
  const LossSample s(c, stream);
  launch(s.with_options(CrossEntropy{.logits = s.logits, .targets = {}, .gradient = true}), stream);
  return {values(s.losses), values(s.logits)};
}

// Copies columns `first` .. of the part from or to the whole.
inline void copy_part(const Tensor& part, const Tensor& whole, int64_t first, bool to_whole,
                      Stream& stream) {
  const int64_t width = part.shape().row(), columns = whole.shape().row();
  launch(StridedCopy{.out = to_whole ? whole : part,
                     .in = to_whole ? part : whole,
                     .rows = whole.shape().rows(),
                     .width = width,
                     .out_stride = to_whole ? columns : width,
                     .in_stride = to_whole ? width : columns,
                     .out_first = to_whole ? first : 0,
                     .in_first = to_whole ? 0 : first},
         stream);
}

// The logits of each part, and the statistics of all.
struct CutLogits {
  std::vector<Tensor> parts;
  std::vector<VocabularyPart> places;
  Tensor statistics;

  CutLogits(const LossSample& s, Stream& stream)
      : statistics(unset({static_cast<int64_t>(s.c.columns.size()), s.c.N,
                          CrossEntropyStatistics::numbers(s.c.options)},
                         accumulator(s.c.type), stream)) {
    int64_t first = 0;
    for (const int64_t columns : s.c.columns) {
      const auto p = static_cast<int64_t>(parts.size());
      parts.push_back(unset({s.c.N, columns}, s.c.type, stream));
      places.push_back({.first = first, .whole = s.c.all()});
      copy_part(parts.back(), s.logits, first, /*to_whole=*/false, stream);
      first += columns;
      const Shape of_part = statistics.shape().with(0, 1);
      launch(CrossEntropyStatistics{.statistics = statistics.slice({p, p + 1}).reshape(of_part),
                                    .logits = parts.back(),
                                    .targets = s.targets,
                                    .part = places.back(),
                                    .options = s.c.options},
             stream);
    }
  }
  CrossEntropyJoined joined(const LossSample& s, size_t p, bool gradient) const {
    CrossEntropyJoined k = s.with_options(CrossEntropyJoined{
        .logits = parts[p], .statistics = statistics, .targets = {}, .gradient = gradient});
    k.part = places[p];
    return k;
  }
};

// Of all parts together; every part has the same losses.
inline LossAndGradient joined_loss(const LossInParts& c, Stream& stream) {
  const LossSample s(c, stream);
  const CutLogits cut(s, stream);
  const Tensor gradient = unset(s.logits.shape(), c.type, stream);
  Numbers losses;
  for (size_t p = 0; p < cut.parts.size(); ++p) {
    launch(cut.joined(s, p, /*gradient=*/true), stream);
    copy_part(cut.parts[p], gradient, cut.places[p].first, /*to_whole=*/true, stream);
    const Numbers found = values(s.losses);
    if (p > 0) {
      EXPECT_EQ(found, losses);
    }
    losses = found;
  }
  return {losses, values(gradient)};
}

// One part; two; uneven ones; one of a column; as many as columns; with padding in a part, and in
// parts of their own.
inline std::vector<LossInParts> losses_in_parts() {
  const std::vector<LossInParts> cuts{
      {.N = 1, .V = 1, .columns = {1}},
      {.N = 5, .V = 24, .columns = {24}},
      {.N = 4, .V = 6, .columns = {3, 3}},
      {.N = 7, .V = 17, .columns = {5, 1, 11}},
      {.N = 5, .V = 17, .columns = {12, 12}},
      {.N = 6, .V = 17, .columns = {8, 9, 3, 4}},
      {.N = 4, .V = 5, .columns = {1, 1, 1, 1, 1, 1, 1}},
      {.N = 5, .V = 5003, .columns = {2519, 2537}},
  };
  std::vector<LossInParts> all;
  for (LossInParts c : cuts) {
    for (const int64_t upstreams : {int64_t{0}, int64_t{1}, c.N}) {
      for (const CrossEntropyOptions& o : options_in_parts) {
        c.options = o;
        c.upstreams = upstreams;
        all.push_back(c);
      }
    }
  }
  return all;
}

}  // namespace spool::testing
