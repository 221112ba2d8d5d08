#include "llama_kernels.h"

#include "attention_bench.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/embedding.h"
#include "spool/kernels/head_norm.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/rms_norm.h"
#include "spool/kernels/rope.h"
#include "spool/kernels/swiglu.h"

namespace spool::benchmarks {
namespace {

struct LlamaSizes {
  const char* name;
  int64_t C, inner, D, V;
  Heads heads;
  bool norms_heads;
  int64_t packed() const { return (heads.query + 2 * heads.key) * D; }
};

constexpr LlamaSizes llama_models[] = {
    {"/llama-3.2-1b", 2048, 8192, 64, 128256, {.query = 32, .key = 8}, false},
    {"/qwen3-0.6b", 1024, 3072, 128, 151936, {.query = 16, .key = 8}, true},
};

// Adds the kernels of one model; N tokens of type t.
struct LlamaBench {
  Bench& b;
  const LlamaSizes& m;
  int64_t N;
  DType t;
  std::string suffix;

  // A linear layer without a bias, as add_product() of kernels.cpp.
  void product(const std::string& layer, int64_t from, int64_t to) const {
    const Shape X{N, from}, W{to, from}, Y{N, to};
    b.add("matmul/forward" + suffix + layer, [=, t = t](Arguments& a) {
      return Matmul{.c = a.make(Y, t), .a = a.make(X, t), .b = a.make(W, t), .b_transposed = true};
    });
    b.add("matmul/backward_input" + suffix + layer, [=, t = t](Arguments& a) {
      return Matmul{.c = a.make(X, t), .a = a.make(Y, t), .b = a.make(W, t)};
    });
    b.add("matmul/backward_weight" + suffix + layer, [=, t = t](Arguments& a) {
      return Matmul{.c = a.make(W, t), .a = a.make(Y, t), .b = a.make(X, t), .a_transposed = true};
    });
  }

  void norms() const {
    const Shape X{N, m.C};
    b.add("rms_norm_forward" + suffix, [X, t = t](Arguments& a) {
      return RmsNormForward{.y = a.make(X, t),
                            .r = a.make({X[0]}, DType::f32),
                            .x = a.make(X, t),
                            .weight = a.make({X[1]}, t)};
    });
    b.add("rms_norm_backward" + suffix, [X, t = t](Arguments& a) {
      return RmsNormBackward{.dx = add_to(a.make(X, t)),
                             .dweight = a.make({X[1]}, t),
                             .dy = a.make(X, t),
                             .x = a.make(X, t),
                             .weight = a.make({X[1]}, t),
                             .r = a.make({X[0]}, DType::f32)};
    });
    b.add("add" + suffix, [X, t = t](Arguments& a) {
      return Add{.out = a.make(X, t), .a = a.make(X, t), .b = a.make(X, t)};
    });
  }

  void heads() const {
    const Shape QKV{1, N, m.packed()};
    const int64_t D = m.D, normed = m.heads.query + m.heads.key;
    b.add("rope" + suffix, [=, heads = m.heads, t = t](Arguments& a) {
      return Rope{.y = a.make(QKV, t),
                  .x = a.make(QKV, t),
                  .table = a.make({QKV[1], D}, DType::f32),
                  .heads = heads};
    });
    if (!m.norms_heads) return;
    b.add("head_norm_forward" + suffix, [=, heads = m.heads, t = t](Arguments& a) {
      return HeadNormForward{.y = a.make(QKV, t),
                             .r = a.make({QKV[1], normed}, DType::f32),
                             .x = a.make(QKV, t),
                             .query = a.make({D}, t),
                             .key = a.make({D}, t),
                             .heads = heads};
    });
    b.add("head_norm_backward" + suffix, [=, heads = m.heads, t = t](Arguments& a) {
      return HeadNormBackward{.dx = a.make(QKV, t),
                              .dquery = a.make({D}, t),
                              .dkey = a.make({D}, t),
                              .dy = a.make(QKV, t),
                              .x = a.make(QKV, t),
                              .query = a.make({D}, t),
                              .key = a.make({D}, t),
                              .r = a.make({QKV[1], normed}, DType::f32),
                              .heads = heads};
    });
  }

  void attention() const {
    add_attention(b, {.suffix = suffix, .dtype = t, .T = N, .heads = m.heads, .D = m.D});
  }

  void swiglu() const {
    const Shape Y{N, m.inner}, X{N, 2 * m.inner};
    b.add("swiglu_forward" + suffix,
          [=, t = t](Arguments& a) { return SwigluForward{.y = a.make(Y, t), .x = a.make(X, t)}; });
    b.add("swiglu_backward" + suffix, [=, t = t](Arguments& a) {
      return SwigluBackward{.dx = a.make(X, t), .dy = a.make(Y, t), .x = a.make(X, t)};
    });
  }

  void embedding_and_loss() const {
    const Shape W{m.V, m.C}, ids{1, N}, X{1, N, m.C}, logits{N, m.V};
    b.add("embedding_forward" + suffix, [=, t = t](Arguments& a) {
      return EmbeddingForward{
          .y = a.make(X, t), .tokens = a.make(ids, DType::i32), .weight = a.make(W, t)};
    });
    b.add("embedding_backward" + suffix, [=, t = t](Arguments& a) {
      return EmbeddingBackward{.dweight = add_to(a.make(W, t)),
                               .dpositions = {},
                               .dy = a.make(X, t),
                               .tokens = a.make(ids, DType::i32)};
    });
    b.add("cross_entropy/gradient" + suffix, [=, t = t, rows = N](Arguments& a) {
      return CrossEntropy{.logits = a.make(logits, t),
                          .targets = a.make({rows}, DType::i32),
                          .losses = a.make({rows}, DType::f32),
                          .gradient = true};
    });
  }
};

}  // namespace

void add_llama_kernels(Bench& b, DType t, const std::string& suffix) {
  for (const LlamaSizes& m : llama_models) {
    const LlamaBench bench{b, m, std::min<int64_t>(b.N, 2048), t, suffix + m.name};
    bench.product("/qkv", m.C, m.packed());
    bench.product("/projection", m.heads.query * m.D, m.C);
    bench.product("/gate_and_up", m.C, 2 * m.inner);
    bench.product("/down", m.inner, m.C);
    bench.product("/head", m.C, m.V);
    bench.norms();
    bench.heads();
    bench.attention();
    bench.swiglu();
    bench.embedding_and_loss();
  }
}

}  // namespace spool::benchmarks
