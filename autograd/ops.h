#pragma once

// Every op.  foo() is defined in autograd/ops/foo.cpp.  In shapes, N.. is any number of leading
// dimensions.

#include "spool/autograd/tape.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/gelu.h"
#include "spool/runtime/names.h"

namespace spool {

// a + b, of the same shape.
Var add(const Var& a, const Var& b);

// factor * x.
Var scale(const Var& x, double factor);

// x (N.., K) times weight (O, K) transposed, plus bias (O): (N.., O).
Var linear(const Var& x, const Operand& weight);
Var linear(const Var& x, const Operand& weight, const Operand& bias);

// The row of weight (V, C) of each token, i32 (B, T), plus row t of positions (at least T, C):
// (B, T, C).
Var embedding(const Var& tokens, const Operand& weight);
Var embedding(const Var& tokens, const Operand& weight, const Operand& positions);
// The same with row first_position + t of positions; above 0 only on a tape that does not record.
Var embedding(const Var& tokens, const Operand& weight, const Operand& positions,
              int64_t first_position);

// Each row of x (N.., C) normalised, times weight (C), plus bias (C); see kernels/layer_norm.h.
Var layer_norm(const Var& x, const Operand& weight, const Operand& bias, double eps = 1e-5);

Var gelu(const Var& x, GeluForm form = GeluForm::tanh);

// Sets each element to zero with probability p and multiplies the others by 1/(1-p).  Returns x
// itself on a tape that does not train, and for p = 0.
Var dropout(const Var& x, float p);

// Causal attention of packed qkv (B, T, (H + 2 Hkv) D): (B, T, H D), scaled by 1/sqrt(D).
Var attention(const Var& qkv, Heads heads);

// The cache of an attention layer: keys and values (B, Hkv, P, D) of the tokens before `position`,
// with room for P tokens.
struct KeyValueLayer {
  Tensor keys, values;
  int64_t position = 0;
};

// attention() of tokens that follow those in the cache; adds their keys and values to it.  Only on
// a tape that does not record: backward cannot read memory that changes.
Var cached_attention(const Var& qkv, const KeyValueLayer& cache, Heads heads);

enum class Reduction { mean, sum, none };
template <>
inline constexpr std::array enumerator_names<Reduction>{"mean", "sum", "none"};

struct LossOptions {
  Reduction reduction = Reduction::mean;
  CrossEntropyOptions options = {};
};

// Cross entropy of the logits, x (N.., C) times weight (V, C) transposed, against targets i32
// (N..).  Never holds all logits if the plan cuts the N rows into chunks.  mean, f32 (1): the sum
// of the rows' losses times TapeOptions::loss_scale, or by default divided by the number of valid
// targets; sum: f32 (1); none: f32 (N..).
Var linear_cross_entropy(const Var& x, const Operand& weight, const Var& targets,
                         const LossOptions& = {});

}  // namespace spool
