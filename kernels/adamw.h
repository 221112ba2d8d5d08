#pragma once

// AdamW (Loshchilov, Hutter 2019) for many tensors at once:
//   g = clip[0] * grad          m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   w = w - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay w)
// w is the master where there is one (then the parameter is its rounding), else the parameter.
// The values that change from step to step are read from device memory:
//   schedule  f32 (3): lr, 1 - beta1^t, 1 - beta2^t
//   clip      f32 (3): factor, norm of the gradients, whether the norm is finite (1 or 0)
//   random    i32 (4): seed, seed, step, unused
// If the norm is not finite, nothing changes.
//
// A bf16 parameter without a master is rounded stochastically: up or down, with probabilities that
// make its expected value the f32 w.
//   parameter = upper half of (bits of w + r)     finite if w is finite, NaN if w is NaN
// The 16 bits r of element i are half (i / 1024) mod 2, the lower first, of word i mod 4 of Philox
// with
//   key      random[0], random[1]
//   counter  (i / 2048 * 256 + i mod 1024 / 4) mod 2^32, index, random[2], 2^32 - 1
// where `index` distinguishes the tensors of a model.  The bits do not depend on earlier draws.
//
// An entry may be a slice of a tensor that begins at its element `first`.  Elements are
// independent, and their random bits depend on their position in the whole tensor, so updating a
// tensor in slices gives the same bits as updating it whole.
//
// ClipFactor: norm = sqrt(squared[0]); clip = {min(1, limit / norm), norm, isfinite(norm)}; with
// limit 0 the factor is 1.

#include "spool/kernels/launch.h"
#include "spool/kernels/list.h"

namespace spool {

struct AdamW {
  static constexpr const char* name = "adamw";
  static constexpr int64_t granule = 2048;  // elements that share their random words
  struct Entry {
    View parameter;    // f32, or bf16
    View master = {};  // f32; absent where the parameter is f32, or rounded stochastically
    View m, v;         // f32: running means of the gradient and of its square
    View grad;         // type of the parameter, or f32
    float decay = 0;
    uint32_t index = 0;
    int64_t first = 0;  // a multiple of `granule`
  };
  List<Entry, 56> tensors = {};  // parameters of one type, all or none with masters
  View random = {};              // present where parameters are rounded stochastically
  View schedule, clip;
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;

  Cost cost() const {
    constexpr double update = 12, draw = 14;  // flops an element
    Cost sum;
    for (const Entry& t : tensors) {
      sum.flops += (random ? update + draw : update) * static_cast<double>(t.m.numel());
      sum.bytes += bytes(t.parameter, t.grad) + 2 * bytes(t.m, t.v, t.master) +
                   (t.master ? 0.0 : bytes(t.parameter));
    }
    return sum;
  }
};

// Throws if the types of an entry, or where its slice begins, are not supported.
inline void check_entry(const AdamW& k, const AdamW::Entry& t) {
  const DType type = t.parameter.dtype();
  const bool alone = !t.master && !k.random, either = bool(t.master) != bool(k.random);
  check(type == DType::f32 ? alone : type == DType::bf16 && either, "adamw: a parameter of type ",
        name(type), t.master ? " with" : " without", " a master, rounded ",
        k.random ? "stochastically" : "to nearest", ", is not supported; f32 has no master, and ",
        "bf16 either has a master or is rounded stochastically");
  check(t.grad.dtype() == DType::f32 || t.grad.dtype() == type, "adamw: the gradient of a ",
        name(type), " parameter must be ", name(type), " or f32, not ", name(t.grad.dtype()));
  check(t.first >= 0 && t.first % AdamW::granule == 0, "adamw: a slice begins at element ", t.first,
        "; it must begin at a multiple of ", AdamW::granule);
}

struct ClipFactor {
  static constexpr const char* name = "clip_factor";
  View clip, squared;  // f32 (3), f64 (1)
  float limit = 0;
  Cost cost() const { return {4, bytes(clip, squared)}; }
};

void run(const AdamW&, CpuStream&);
void run(const ClipFactor&, CpuStream&);
void run(const AdamW&, CudaStream&);
void run(const ClipFactor&, CudaStream&);

}  // namespace spool
