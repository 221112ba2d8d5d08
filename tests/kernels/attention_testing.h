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
  // For texts packed into a row, the tokens of each; in row b each has b tokens more.  0: not
  // packed.  any_first: every query begins at a key of its own.
  int64_t packed = 0;
  static constexpr int64_t any_first = -1;

  AttentionCase with(Mask m) const { return {B, T, H, Hkv, D, m}; }
  // Query i of row b sees keys first(b, i) to end(i) - 1.
  int64_t end(int64_t i) const { return mask == Mask::causal ? i + 1 : T; }
  int64_t first(int64_t b, int64_t i) const {
    if (packed == any_first) return (7919 * i + 31 * b) % (i + 1);
    return packed ? i / (packed + b) * (packed + b) : 0;
  }
  std::vector<int32_t> firsts() const {
    std::vector<int32_t> all;
    for (int64_t n = 0; n < B * T; ++n) all.push_back(static_cast<int32_t>(first(n / T, n % T)));
    return all;
  }
  Heads heads() const { return {.query = H, .key = Hkv}; }
  int64_t row() const { return (H + 2 * Hkv) * D; }
  Shape qkv() const { return {B, T, row()}; }
  Shape y() const { return {B, T, H * D}; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  friend std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
    return out << "B " << c.B << " T " << c.T << " H " << c.H << " Hkv " << c.Hkv << " D " << c.D
               << " mask " << name(c.mask) << " packed " << c.packed;
  }
};

// The tensors of both passes.
struct AttentionTensors {
  Tensor qkv, dy, y, lse, dqkv, first = {};

  void forward(const AttentionCase& c, double scale) const {
    launch(forward_kernel(c, scale), qkv.stream());
  }
  void backward(const AttentionCase& c, double scale, const Grad& to) const {
    launch(backward_kernel(c, scale, to), qkv.stream());
  }
  AttentionForward forward_kernel(const AttentionCase& c, double scale) const {
    return {.y = y,
            .lse = lse,
            .qkv = qkv,
            .heads = c.heads(),
            .scale = scale,
            .mask = c.mask,
            .first = first};
  }
  AttentionBackward backward_kernel(const AttentionCase& c, double scale, const Grad& to) const {
    return {.dqkv = to,
            .dy = dy,
            .qkv = qkv,
            .y = y,
            .lse = lse,
            .heads = c.heads(),
            .scale = scale,
            .mask = c.mask,
            .first = first};
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
    if (c.packed) first = make_tensor<int32_t>({c.B, c.T}, c.firsts(), stream);
  }

 private:
  static void write_nan(CpuStream& stream) {
    const Tensor all({Shape{4 << 20}}, stream);
    write<float>(all, std::vector<float>(4 << 20, std::nanf("")));
  }
};

}  // namespace spool::testing
