#include "spool/kernels/rope.h"

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/packed_heads.h"

namespace spool {
namespace {

struct RopeOp final : Op {
  PackedHeads heads;
  int64_t first_position;
  bool has_positions;
  std::string notation;
  RopeOp(const PackedHeads& h, int64_t first, bool positions)
      : heads(h),
        first_position(first),
        has_positions(positions),
        notation(fmt::format("bT{0},SD,bT->bT{0}", h.packed())) {}

  const char* name() const override { return "rope"; }
  std::string attributes() const override {
    return heads.attributes() + ", " + in_words({{"first position", first_position}});
  }
  const char* indices() const override { return notation.c_str(); }

  Specs infer(const Specs& in) const override {
    const Spec &qkv = in[0], &table = in[1];
    const auto [H, Hkv] = heads.in(qkv.shape.row());
    check(qkv.shape.rank() == 3, "rope: packed q, k and v must be (B, T, (H + 2 Hkv) D), not ",
          qkv);
    const int64_t B = qkv.shape[0], T = qkv.shape[1], packed = H + 2 * Hkv;
    check(H > 0 && Hkv > 0 && qkv.shape[2] % (2 * packed) == 0, "rope: ", qkv,
          " does not divide into ", packed, " heads of an even size");
    const int64_t D = qkv.shape[2] / packed;
    check(table.shape.rank() == 2 && table.shape[1] == D && table.dtype == accumulator(qkv.dtype),
          "rope: a table of ", table, " for ", qkv, "; it must be ",
          spool::name(accumulator(qkv.dtype)), " (positions, ", D,
          "), the cosines and sines of rope_table()");
    if (has_positions) {
      check(in[2] == Spec{Shape{B, T}, DType::i32}, "rope: positions of ", in[2], " for ", qkv,
            "; they must be ", Spec{Shape{B, T}, DType::i32});
      return {qkv};
    }
    check(first_position >= 0 && first_position + T <= table.shape[0], "rope: ", T,
          " tokens in a row from position ", first_position, " on, and the table has ",
          table.shape[0], " positions");
    return {qkv};
  }

  void forward(Forward& f) const override {
    auto [qkv, table, positions] = f.inputs<3>();
    auto [y] = f.outputs<1>();
    f.launch(kernel(y, qkv, table, positions));
  }

  Slots saves(const Needs& needs) const override {
    check(!needs[1], "rope: its table needs a gradient, and gets none");
    return has_positions ? Slots{in(1), in(2)} : Slots{in(1)};
  }

  void backward(Backward& b) const override {
    const View table = b.saved_at(0), positions = has_positions ? b.saved_at(1) : View{};
    auto [dy] = b.grad_outputs<1>();
    Rope back = kernel(b.grad_input_over(0, 0), dy, table, positions);
    back.back = true;
    b.launch(back);
  }

 private:
  Rope kernel(const Grad& y, const View& x, const View& table, const View& positions) const {
    return {.y = y,
            .x = x,
            .table = table,
            .positions = positions,
            .heads = heads.in(x.shape().row()),
            .first_position = first_position};
  }
};

}  // namespace

Var rope(const Var& qkv, const Var& table, Heads heads, int64_t first_position) {
  return apply<RopeOp>(qkv.tape(), {qkv, table}, PackedHeads(heads, qkv.shape().row()),
                       first_position, /*positions=*/false);
}

Var rope(const Var& qkv, const Var& table, Heads heads, const Var& positions) {
  if (!positions) return rope(qkv, table, heads);
  return apply<RopeOp>(qkv.tape(), {qkv, table, positions}, PackedHeads(heads, qkv.shape().row()),
                       int64_t{0}, /*positions=*/true);
}

}  // namespace spool
