#include "spool/kernels/cached_attention.h"

#include "spool/autograd/ops.h"
#include "spool/autograd/ops/packed_heads.h"

namespace spool {
namespace {

struct CachedAttentionOp final : Op {
  PackedHeads heads;
  int64_t position;
  std::string notation;
  CachedAttentionOp(const PackedHeads& h, int64_t at)
      : heads(h),
        position(at),
        notation(fmt::format("bT{},bhSD,bhSD,b->bT{}", h.packed(), h.queries())) {}

  const char* name() const override { return "cached_attention"; }
  OpKind kind() const override { return OpKind::attention; }
  std::string attributes() const override {
    return heads.attributes() + ", " + in_words({{"position", position}});
  }
  const char* indices() const override { return notation.c_str(); }

  Specs infer(const Specs& in) const override {
    const Spec &qkv = in[0], &keys = in[1], &values = in[2];
    const auto [H, Hkv] = heads.in(qkv.shape.row());
    check(H > 0 && Hkv > 0 && H % Hkv == 0, "cached_attention: ", H, " query heads cannot share ",
          Hkv, " key heads");
    check(qkv.shape.rank() == 3 && keys.shape.rank() == 4, "cached_attention: ", qkv,
          " with a cache of ", keys,
          "; they must be (B, n, (H + 2 Hkv) D) and (B, Hkv, positions, D)");
    const int64_t B = qkv.shape[0], n = qkv.shape[1], P = keys.shape[2], D = keys.shape[3];
    check(qkv == Spec{Shape{B, n, (H + 2 * Hkv) * D}, keys.dtype} && keys == values &&
              keys.shape == Shape{B, Hkv, P, D},
          "cached_attention: ", qkv, " of ", H, " query and ", Hkv, " key heads with keys of ",
          keys, " and values of ", values);
    check(position >= 0 && position + n <= P, "cached_attention: ", n, " tokens from position ",
          position, " on do not fit into a cache of ", P);
    if (in.size() > 3) {
      check(in[3] == Spec{Shape{B}, DType::i32}, "cached_attention: first tokens of ", in[3],
            " for ", qkv, "; they must be ", Spec{Shape{B}, DType::i32});
    }
    if (in.size() > 4) {
      check(n == 1 && in[4] == Spec{Shape{1}, DType::i32}, "cached_attention: a place of ", in[4],
            " for ", n, " tokens; it must be ", Spec{Shape{1}, DType::i32}, " and for one");
    }
    return {{Shape{B, n, H * D}, qkv.dtype}};
  }

  void forward(Forward& f) const override {
    auto [qkv, keys, values, first, place] = f.inputs<5>();
    auto [y] = f.outputs<1>();
    f.launch(CachedAttention{.y = y,
                             .keys = keys,
                             .values = values,
                             .qkv = qkv,
                             .heads = heads.in(qkv.shape().row()),
                             .position = position,
                             .scale = heads.scale(),
                             .first = first,
                             .place = place});
  }

  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward&) const override {
    fail(ErrorKind::invalid, "cached_attention: there is no backward");
  }
  bool differentiable(int) const override { return false; }
  bool recomputable() const override { return false; }
  bool writes(int i) const override { return i == 1 || i == 2; }
};

}  // namespace

Var cached_attention(const Var& qkv, const KeyValueLayer& cache, Heads heads, const Var& first) {
  Tape& tape = qkv.tape();
  check(
      !tape.options().recording,
      "cached_attention: a cache is for a tape that does not record; use attention() on this one");
  const PackedHeads packed(heads, qkv.shape().row());
  const auto input = [&](const Tensor& t) {
    return cache.whole.shape.rank() > 0 ? tape.input(t, cache.whole) : tape.input(t);
  };
  const Var keys = input(cache.keys), values = input(cache.values);
  if (!first) {
    check(!cache.place, "cached_attention: a cache with a place needs the first token of each row");
    return apply<CachedAttentionOp>(tape, {qkv, keys, values}, packed, cache.position);
  }
  if (!cache.place) {
    return apply<CachedAttentionOp>(tape, {qkv, keys, values, first}, packed, cache.position);
  }
  const Var place = tape.input(cache.place);
  return apply<CachedAttentionOp>(tape, {qkv, keys, values, first, place}, packed, cache.position);
}

}  // namespace spool
