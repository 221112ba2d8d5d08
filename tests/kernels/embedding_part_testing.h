#pragma once

// Embeddings whose weight is cut into parts of its rows, and the same embeddings whole.

#include "spool/kernels/embedding.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {

struct EmbeddingInParts {
  int64_t B = 2, T = 5, C = 7;
  std::vector<int64_t> rows;  // of each part
  DType type = DType::f32;

  int64_t all() const {
    int64_t sum = 0;
    for (const int64_t r : rows) sum += r;
    return sum;
  }
};

// Parts alike, uneven ones, as many as rows, and rows of several packs.
inline const std::vector<EmbeddingInParts> embeddings_in_parts{
    {.rows = {11}},
    {.rows = {6, 6}},
    {.B = 3, .C = 33, .rows = {5, 1, 9}},
    {.B = 3, .T = 40, .C = 8, .rows = {1, 1, 1, 1, 1}},
    {.B = 5, .T = 70, .C = 264, .rows = {300, 41, 7}},
};

struct EmbeddingSample {
  EmbeddingInParts c;
  std::vector<int32_t> ids;
  Tensor tokens, weight, positions, dy;

  EmbeddingSample(EmbeddingInParts embedding, Stream& stream)
      : c(std::move(embedding)),
        weight(normal({c.all(), c.C}, c.type, stream, 1)),
        positions(normal({c.T + 2, c.C}, c.type, stream, 2)),
        dy(normal({c.B, c.T, c.C}, c.type, stream, 3)) {
    Random random(9);
    for (int64_t i = 0; i < c.B * c.T; ++i) {
      const double skewed = random.uniform() * random.uniform();
      ids.push_back(static_cast<int32_t>(skewed * static_cast<double>(c.all())));
    }
    tokens = integers({c.B, c.T}, ids, stream);
  }
  EmbeddingForward forward(const Tensor& y, const VocabularyPart& part, int64_t rows) const {
    return {.y = y,
            .tokens = tokens,
            .weight = weight.slice({part.first, part.first + rows}),
            .part = part};
  }
  EmbeddingForward placed(EmbeddingForward k) const {
    k.positions = positions;
    k.first_position = 2;
    return k;
  }
};

struct Embedded {
  Numbers plain, placed, dweight, dpositions;
};

inline Embedded embedded(const EmbeddingSample& s, const VocabularyPart& part, int64_t rows,
                         Stream& stream) {
  const Tensor y = unset({s.c.B, s.c.T, s.c.C}, s.c.type, stream);
  launch(s.forward(y, part, rows), stream);
  Embedded all{values(y), {}, {}, {}};
  launch(s.placed(s.forward(y, part, rows)), stream);
  all.placed = values(y);
  const Tensor dweight = unset({rows, s.c.C}, s.c.type, stream),
               added = normal({rows, s.c.C}, DType::f32, stream, 4),
               dpositions = unset({s.c.T, s.c.C}, s.c.type, stream);
  EmbeddingBackward k{
      .dweight = dweight, .dpositions = dpositions, .dy = s.dy, .tokens = s.tokens, .part = part};
  launch(k, stream);
  append(all.dweight, dweight);
  append(all.dpositions, dpositions);
  if (s.c.type == DType::f64) return all;
  k.dweight = add_to(added);
  launch(k, stream);
  append(all.dweight, added);
  return all;
}

// Every part of a sample, in order.
inline std::vector<Embedded> embedded_parts(const EmbeddingSample& s, Stream& stream) {
  std::vector<Embedded> all;
  int64_t first = 0;
  for (const int64_t rows : s.c.rows) {
    all.push_back(embedded(s, {.first = first, .whole = s.c.all()}, rows, stream));
    first += rows;
  }
  return all;
}

}  // namespace spool::testing
