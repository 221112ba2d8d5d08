#include "attention_bench.h"

#include <cmath>

namespace spool::benchmarks {

void add_attention(Bench& b, const AttentionBench& c) {
  const int64_t packed = (c.heads.query + 2 * c.heads.key) * c.D;
  const Shape QKV{c.rows, c.T, packed}, Y{c.rows, c.T, c.heads.query * c.D},
      LSE{c.rows, c.heads.query, c.T};
  const double scale = 1 / std::sqrt(static_cast<double>(c.D));
  const auto starts = [c](Arguments& a) {
    return c.documents > 1 ? a.document_starts(c.rows, c.T, c.documents) : View();
  };
  b.add("attention_forward" + c.suffix, [=](Arguments& a) {
    return AttentionForward{.y = a.make(Y, c.dtype),
                            .lse = a.make(LSE, DType::f32),
                            .qkv = a.make(QKV, c.dtype),
                            .heads = c.heads,
                            .scale = scale,
                            .first = starts(a)};
  });
  b.add("attention_backward" + c.suffix, [=](Arguments& a) {
    return AttentionBackward{.dqkv = a.make(QKV, c.dtype),
                             .dy = a.make(Y, c.dtype),
                             .qkv = a.make(QKV, c.dtype),
                             .y = a.make(Y, c.dtype),
                             .lse = a.make(LSE, DType::f32),
                             .heads = c.heads,
                             .scale = scale,
                             .first = starts(a)};
  });
}

}  // namespace spool::benchmarks
