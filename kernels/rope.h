#pragma once

// Rotary position embedding (Su et al. 2021) of the queries and keys of packed q, k and v; it pairs
// the halves of a head, as model files on Hugging Face do.  x (B, T, (H + 2 Hkv) D) is packed as in
// kernels/attention.h.  Each of the H + Hkv first heads of a token is turned by the angles of its
// position p, and values are copied; for d < D/2, with c = table[p, d], s = table[p, D/2 + d]:
//   y[d] = x[d] c - x[D/2 + d] s      y[D/2 + d] = x[D/2 + d] c + x[d] s
// Backward turns back, by -s: y is then the gradient of x, and x that of y.  All is computed
// in f32 (f64 where x is) and rounded once.
//
// The table (rows, D) is f32 (f64 where x is): in each row the D/2 cosines of a position, then its
// D/2 sines, as rope_table() makes them (kernels/rope_table.h).  p is positions[b, t] or, where
// positions are absent, first_position + t.  A position that has no row is an error on the cpu.  On
// cuda, where the host does not read positions, the token's queries and keys are NaN.
//
// y may be x, of the same type; otherwise it shares no memory with other arguments.

#include "spool/kernels/attention.h"

namespace spool {

struct Rope {
  static constexpr const char* name = "rope";
  Grad y;               // of the shape of x; its type, or f32
  View x, table;        // (B, T, (H + 2 Hkv) D), (rows, D)
  View positions = {};  // i32 (B, T), or absent
  Heads heads = {};
  int64_t first_position = 0;
  bool back = false;

  int64_t head_size() const { return x.shape().row() / (heads.query + 2 * heads.key); }
  void check_arguments() const;
  Cost cost() const {
    return {3.0 * static_cast<double>(x.numel()), bytes(y, x, positions), accumulator(x.dtype())};
  }
};

void run(const Rope&, CpuStream&);
void run(const Rope&, CudaStream&);

}  // namespace spool
