#pragma once

// Every op of the engine.  The definition of foo() is in autograd/ops/foo.cpp.
// N.. stands for any number of leading dimensions.

#include "spool/autograd/tape.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/gelu.h"

namespace spool {

// a + b, of one shape.
Var add(const Var& a, const Var& b);

// factor * x.
Var scale(const Var& x, double factor);

// x (N.., K) times weight (O, K) transposed, plus bias (O): (N.., O).
Var linear(const Var& x, const Operand& weight);
Var linear(const Var& x, const Operand& weight, const Operand& bias);

// Rows of weight (V, C) by tokens i32 (B, T), plus row t of positions (at least T, C): (B, T, C).
Var embedding(const Var& tokens, const Operand& weight);
Var embedding(const Var& tokens, const Operand& weight, const Operand& positions);
// Plus row first_position + t instead; above 0 only on a tape that does not record.
Var embedding(const Var& tokens, const Operand& weight, const Operand& positions,
              int64_t first_position);

// Each row of x (N.., C) normalised, times weight (C), plus bias (C); see kernels/layer_norm.h.
Var layer_norm(const Var& x, const Operand& weight, const Operand& bias, double eps = 1e-5);

Var gelu(const Var& x, GeluForm form = GeluForm::tanh);

// Elements are zero with probability p, the others 1/(1-p) as large.  On a tape that does not
// train, and for p = 0, x itself.
Var dropout(const Var& x, float p);

// Causal attention of packed qkv (B, T, (H + 2 Hkv) D): (B, T, H D), scaled by 1/sqrt(D).
Var attention(const Var& qkv, Heads heads);

// What an attention keeps of the tokens it has seen: keys and values (B, Hkv, P, D) of those before
// `position`, of at most P.
struct KeyValueLayer {
  Tensor keys, values;
  int64_t position = 0;
};

// attention() of tokens that follow those of the cache, whose keys and values it then holds as
// well. Only on a tape that does not record: backward has no use for memory that changes.
Var cached_attention(const Var& qkv, const KeyValueLayer& cache, Heads heads);

enum class Reduction { mean, sum, none };
constexpr const char* name(Reduction r) {
  constexpr const char* names[] = {"mean", "sum", "none"};
  return names[static_cast<size_t>(r)];
}

struct LossOptions {
  Reduction reduction = Reduction::mean;
  CrossEntropyOptions options = {};
};

// The cross entropy of x (N.., C) times weight (V, C) transposed against targets i32 (N..), without
// ever making the logits whole: a plan cuts the N rows into chunks.  mean: the sum of the rows'
// losses times TapeOptions::loss_scale, or by default divided by the number of valid targets; sum:
// f32 (1); none: f32 (N..).
Var linear_cross_entropy(const Var& x, const Operand& weight, const Var& targets,
                         const LossOptions& = {});

}  // namespace spool
