#pragma once

// Tensors of a forward and a backward pass of attention.

#include <ostream>

#include "spool/kernels/attention.h"
#include "spool/kernels/launch.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {

constexpr size_t attention_budget = size_t{64} << 20;

struct AttentionCase {
  int64_t B, T, H, Hkv, D;
  Mask mask = Mask::causal;

  AttentionCase with(Mask m) const { return {B, T, H, Hkv, D, m}; }
  // The number of keys that query i sees.
  int64_t seen(int64_t i) const { return mask == Mask::causal ? i + 1 : T; }
  Heads heads() const { return {.query = H, .key = Hkv}; }
  int64_t row() const { return (H + 2 * Hkv) * D; }
  Shape qkv() const { return {B, T, row()}; }
  Shape y() const { return {B, T, H * D}; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  friend std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
    return out << "B " << c.B << " T " << c.T << " H " << c.H << " Hkv " << c.Hkv << " D " << c.D
               << " mask " << name(c.mask);
  }
};

// The tensors of both passes.
struct AttentionTensors {
  Tensor qkv, dy, y, lse, dqkv;

  void forward(const AttentionCase& c, double scale) const {
    launch(
        AttentionForward{
            .y = y, .lse = lse, .qkv = qkv, .heads = c.heads(), .scale = scale, .mask = c.mask},
        qkv.stream());
  }
  void backward(const AttentionCase& c, double scale, const Grad& to) const {
    launch(AttentionBackward{.dqkv = to,
                             .dy = dy,
                             .qkv = qkv,
                             .y = y,
                             .lse = lse,
                             .heads = c.heads(),
                             .scale = scale,
                             .mask = c.mask},
           qkv.stream());
  }
};

// The tensors on the cpu.  They and the workspaces hold NaN until they are written.
struct AttentionPass : AttentionTensors {
  AttentionPass(const AttentionCase& c, DType dtype, CpuStream& stream) {
    write_nan(stream);
    qkv = normal(c.qkv(), dtype, stream, 1);
    dy = normal(c.y(), dtype, stream, 2);
    y = Tensor({c.y(), dtype}, stream);
    lse = Tensor({{c.B, c.H, c.T}, accumulator(dtype)}, stream);
    dqkv = Tensor({c.qkv(), dtype}, stream);
  }

 private:
  static void write_nan(CpuStream& stream) {
    const Tensor all({Shape{4 << 20}}, stream);
    write<float>(all, std::vector<float>(4 << 20, std::nanf("")));
  }
};

}  // namespace spool::testing
