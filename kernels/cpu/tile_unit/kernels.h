#pragma once

// What the tile unit of a processor (AMX) computes, as functions: once with its instructions, and
// once with those in plain C++, for tests on any processor.  Both have the same bits.
//
// A deliberate exception: elsewhere a library multiplies matrices (matmul_onednn.cpp).  None gives
// a row the same bits alone, among few and among many, with a workspace that is a function of
// shape.  When one does, this goes; benchmarks/step runs oneDNN beside it.

#include <cstdint>

#include "spool/runtime/cpu/tile_unit.h"

namespace spool::cpu::tiles {

// c (M, N) = alpha a b, plus bias and what is in c if wanted; all in memory as in kernels/matmul.h.
struct Product {
  int64_t M = 0, N = 0, K = 0;
  int64_t a_row = 0, b_row = 0, c_row = 0;  // elements from one row in memory to the next
  float alpha = 1;
  const uint16_t *a = nullptr, *b = nullptr, *bias = nullptr;  // bf16; bias may be absent
  void* c = nullptr;                                           // bf16 or f32
  bool a_transposed = false, b_transposed = false, accumulate = false, c_is_f32 = false;
};

struct Interval {
  int64_t begin = 0, end = 0;
  [[gnu::always_inline]] int64_t size() const { return end - begin; }
};

// A part of c, all of whose terms a thread adds up.  Its columns of b are packed in parts of the
// terms; sums of all its rows stay in memory between parts.
struct Strip {
  Interval rows, columns;
  int64_t part_terms = 0;  // a multiple of 32
};

// Rows of c and some columns, for some terms, whose right panels are packed and shared by threads.
// The first terms begin the sums, which stay in memory; the last ones finish them.
struct SharedPart {
  Interval rows, columns, terms;
};

constexpr int64_t group_rows = 64;       // whose sums stay in the second-level cache
constexpr int64_t shared_columns = 256;  // of a shared part that are computed together
constexpr int64_t most_turned_rows = 128;

// attention_kernels.h
struct AttentionHead;
struct AttentionOutput;
struct AttentionUpstream;
struct AttentionGradient;
struct AttentionSums;

struct Kernels {
  void (*multiply_strip)(const Product&, const Strip&, char* lane);
  // Packs some terms of a shared part, from a multiple of 32 after its first on.
  void (*pack_shared)(const Product&, const SharedPart&, Interval terms, char* shared);
  void (*multiply_shared)(const Product&, const SharedPart&, const char* shared, char* lane);
  // For up to most_turned_rows rows of a against rows of b in memory: c^T = b a^T, with rows of b
  // in place.  Packs some terms of a, from a multiple of 32 on.
  void (*pack_turned)(const Product&, Interval terms, char* packed);
  void (*multiply_turned)(const Product&, Interval columns, const char* packed);
  // Attention forward of up to forward_queries queries, from a multiple of that on.
  void (*attend)(const AttentionHead&, const AttentionOutput&, Interval queries, char* lane);
  // Attention backward of a tile of keys: packs them; for each tile of queries adds its terms to
  // the sums of the keys and forms what they add to dq, which then goes to the gradient; writes dk
  // and dv.
  void (*begin_keys)(const AttentionHead&, Interval keys, char* lane);
  void (*differentiate)(const AttentionHead&, const AttentionUpstream&, Interval queries,
                        Interval keys, char* lane);
  void (*add_queries)(const AttentionHead&, Interval queries, const AttentionSums&,
                      const AttentionGradient&, char* lane);
  void (*end_keys)(const AttentionHead&, Interval keys, const AttentionGradient& dkeys,
                   const AttentionGradient& dvalues, char* lane);
  // So many times four products of tiles in registers, the fastest that the unit is.
  void (*spin)(int64_t times);
};

const Kernels& unit_kernels();  // with its instructions

// Of a unit that is emulated or present.
const Kernels& kernels_of(TileUnit unit);

}  // namespace spool::cpu::tiles
