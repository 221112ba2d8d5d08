// Public: one of the headers of docs/public-headers.md.
#pragma once

// All ops.  foo() is defined in autograd/ops/foo.cpp.  In shapes, N.. is any number of leading
// dimensions.

#include "spool/autograd/tape.h"
#include "spool/kernels/attention.h"
#include "spool/kernels/cross_entropy.h"
#include "spool/kernels/gelu.h"
#include "spool/runtime/names.h"

namespace spool {

// Element by element, on operands of one type.  One has the shape of the result; the other has it
// too, or is broadcast: a row (C), as long as the last dimension; a number for each row (N.., 1);
// or one number (1).
Var add(const Operand& a, const Operand& b);
Var sub(const Operand& a, const Operand& b);
Var mul(const Operand& a, const Operand& b);
Var div(const Operand& a, const Operand& b);

// factor * x.
Var scale(const Var& x, double factor);

// Element by element.  map() (autograd/ops/map.h) makes more of them.
Var relu(const Operand& x);
Var silu(const Operand& x);  // x sigmoid(x)
Var sigmoid(const Operand& x);
Var tanh(const Operand& x);
Var exp(const Operand& x);
Var log(const Operand& x);
Var square(const Operand& x);

// x (N.., K) times weight (O, K) transposed, plus bias (O): (N.., O).
Var linear(const Var& x, const Operand& weight);
Var linear(const Var& x, const Operand& weight, const Operand& bias);

// Low-rank adapters of a weight (LoRA; Hu et al. 2021): to some columns of the result, those of
// each of G targets g, is added scale x A_g^T B_g^T.  A (G R, K) has R rows for each target, B (the
// columns of all, R) a row for each column, both in the order of `columns`.  On a tape that trains,
// each target reads x after dropout with numbers of its own.
struct LowRank {
  Operand a, b;
  std::vector<Range> columns;
  double scale = 1;
  float dropout = 0;
};
Var linear(const Var& x, const Operand& weight, const LowRank& adapter);
Var linear(const Var& x, const Operand& weight, const Operand& bias, const LowRank& adapter);

// The row of weight (V, C) of each token, i32 (B, T) or, without positions, (N); plus row t of
// positions (at least T, C): (B, T, C) or (N, C).
Var embedding(const Var& tokens, const Operand& weight);
Var embedding(const Var& tokens, const Operand& weight, const Operand& positions);
// The same with row first_position + t of positions; above 0 only on a tape that does not record.
Var embedding(const Var& tokens, const Operand& weight, const Operand& positions,
              int64_t first_position);

// Each row of x (N.., C) normalised, times weight (C), plus bias (C); see kernels/layer_norm.h.
Var layer_norm(const Var& x, const Operand& weight, const Operand& bias, double eps = 1e-5);

// Each row of x (N.., C) divided by its root mean square, times weight (C); see kernels/rms_norm.h.
Var rms_norm(const Var& x, const Operand& weight, double eps = 1e-5);

// rms_norm() of each query and key head of packed qkv (N.., (H + 2 Hkv) D), times the weight of
// queries and that of keys, (D) each; values are copied.
Var head_norm(const Var& qkv, const Operand& query, const Operand& key, Heads heads,
              double eps = 1e-6);

// silu(g) u of rows (N.., 2 I), of which g is the first half and u the second: (N.., I).
Var swiglu(const Var& gate_up);

// GELU of each element of x (N.., C), or of x + bias (C), which is cheaper than a bias in the
// linear() before it.  See kernels/gelu.h.
Var gelu(const Var& x, GeluForm form = GeluForm::tanh);
Var gelu(const Var& x, const Operand& bias, GeluForm form = GeluForm::tanh);

// Sets each element to zero with probability p and multiplies the others by 1/(1-p).  Returns x
// itself on a tape that does not train, and for p = 0.
Var dropout(const Var& x, float p);

// Rotary position embedding of the queries and keys of packed qkv (B, T, (H + 2 Hkv) D); values are
// copied.  The table, f32 (f64 for f64) (rows, D), is that of kernels/rope_table.h, and gets no
// gradient.  Token t of a row has position first_position + t; or, where positions i32 (B, T) are
// present, its own, which must be below the table's rows.
Var rope(const Var& qkv, const Var& table, Heads heads, int64_t first_position = 0);
Var rope(const Var& qkv, const Var& table, Heads heads, const Var& positions);

// Attention of packed qkv (B, T, (H + 2 Hkv) D): (B, T, H D), scaled by 1/sqrt(D).  A query sees
// the keys of its own token and those before it, or with Mask::none those of all T tokens.  With
// SumOrder::any its gradient may have other bits each time, on cuda.
Var attention(const Var& qkv, Heads heads, Mask mask = Mask::causal,
              SumOrder order = SumOrder::fixed);
// Causal, for texts packed into one row: the query of token t of row b sees the keys from
// first[b,t], i32 (B, T), to its own.  0 <= first[b,t] <= t is up to the caller.
Var attention(const Var& qkv, Heads heads, const Var& first, SumOrder order = SumOrder::fixed);

// The cache of an attention layer: keys and values (B, Hkv, P, D) of the tokens before `position`,
// with room for P tokens.  With `place`, i32 (1), one token is added at the position that is there
// when the work runs, and that is at most `position`.
// Keys and values are this rank's part where `whole` has a shape, which is that of all ranks'.
struct KeyValueLayer {
  Tensor keys = {}, values = {};
  int64_t position = 0;
  Tensor place = {};
  Spec whole = {};
};

// attention() of tokens that follow those in the cache; adds their keys and values to it.  Only on
// a tape that does not record: backward cannot read memory that changes.
// Row b begins at token first[b], i32 (B), if that is present: queries see no keys before it, and
// queries before it see only their own key.  A cache with a place needs it.
Var cached_attention(const Var& qkv, const KeyValueLayer& cache, Heads heads,
                     const Var& first = {});

// The sum and the mean of all elements, f32 (1), f64 if x is; or over the last dimension of x
// (N.., C), in its type: (N..), or (1) if x is a row.  The same bits for any number of threads.
enum class Over { all, last };
Var sum(const Operand& x, Over over = Over::all);
Var mean(const Operand& x, Over over = Over::all);

// exp(x) over its sum along the last dimension.  A row of -infinity alone is NaN.
Var softmax(const Operand& x);

// a (B.., M, K) times b (B.., K, N), or times b (K, N) for all of B..: (B.., M, N).  A transposed
// factor is stored as (B.., K, M) or (B.., N, K).
struct Transposed {
  bool a = false, b = false;
};
Var matmul(const Operand& a, const Operand& b, Transposed transposed = {});

// The same elements in another shape of equal size.  A view: it shares the memory of x, and
// gradients pass through it without a copy.
Var reshape(const Operand& x, const Shape& shape);

// Elements range.begin to range.end - 1 along a dimension; -1 is the last.  A view along the first
// dimension, if it begins at a multiple of 16 bytes, else a copy.
Var slice(const Operand& x, int dim, Range range);

// Up to 8 operands, one after another along a dimension; their other dimensions are equal.
Var concat(std::initializer_list<Operand> all, int dim);
Var concat(std::span<const Operand> all, int dim);

// x with two dimensions exchanged, or with its dimensions in this order: result dimension i is
// dimension order[i] of x.  A copy, or a view if the elements stay in order.
Var transpose(const Operand& x, int dim, int other);
Var permute(const Operand& x, std::span<const int> order);
inline Var permute(const Operand& x, std::initializer_list<int> order) {
  return permute(x, std::span(order.begin(), order.size()));
}

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

// Cross entropy of logits (N.., V), as above.  It holds all logits, and their gradient.
Var cross_entropy(const Operand& logits, const Operand& targets, const LossOptions& = {});

// The mean over each row's elements of (x - y)^2, of x and y (N.., C), reduced over the rows as by
// linear_cross_entropy.  x and y (C) are one row.
Var mse(const Operand& x, const Operand& y, Reduction = Reduction::mean);

}  // namespace spool
