#include "spool/kernels/embedding.h"

#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/ops.h"
#include "spool/autograd/ops/vocabulary.h"

namespace spool {
namespace {

struct Embedding final : Op {
  bool has_positions;
  int64_t first_position;
  explicit Embedding(bool positions, int64_t first = 0)
      : has_positions(positions), first_position(first) {}

  const char* name() const override { return "embedding"; }
  std::string attributes() const override { return in_words({{"first position", first_position}}); }
  // Of a token whose weight is another part's, a part has zeros: the sum over parts is the row.
  const char* indices() const override { return has_positions ? "bT,vc,+Pc->bTc" : "n,vc->nc"; }

  Specs infer(const Specs& in) const override {
    const Spec &tokens = in[0], &weight = in[1];
    const bool has_rows = tokens.shape.rank() == 2;  // and not only tokens, as parts may
    check(tokens.dtype == DType::i32 && (has_rows || (tokens.shape.rank() == 1 && !has_positions)),
          "embedding: tokens must be i32 (B, T), or (N) without positions, not ", tokens);
    check(weight.shape.rank() == 2, "embedding: a weight must be (V, C), not ", weight);
    const int64_t C = weight.shape[1];
    if (!has_rows) return {{Shape{tokens.shape[0], C}, weight.dtype}};
    const int64_t B = tokens.shape[0], T = tokens.shape[1];
    if (in.size() > 2) {
      const Spec& positions = in[2];
      check(
          positions.shape.rank() == 2 && positions.shape[1] == C && positions.dtype == weight.dtype,
          "embedding: positions of ", positions, " beside a weight of ", weight);
      check(first_position >= 0 && first_position + T <= positions.shape[0], "embedding: ", T,
            " tokens in a row from position ", first_position, " on, and there are positions for ",
            positions.shape[0]);
    }
    return {{Shape{B, T, C}, weight.dtype}};
  }

  void forward(Forward& f) const override {
    auto [tokens, weight, positions] = f.inputs<3>();
    auto [y] = f.outputs<1>();
    f.launch(EmbeddingForward{.y = y,
                              .tokens = tokens,
                              .weight = weight,
                              .positions = positions,
                              .first_position = first_position,
                              .part = own_vocabulary(f.place())});
  }

  Slots saves(const Needs&) const override { return {in(0)}; }

  void backward(Backward& b) const override {
    auto [tokens] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    const Grad dweight = b.grad_input(1), dpositions = b.grad_input(2);
    b.launch(EmbeddingBackward{.dweight = dweight,
                               .dpositions = dpositions,
                               .dy = dy,
                               .tokens = tokens,
                               .part = own_vocabulary(b.place())});
  }
};

}  // namespace

Var embedding(const Var& tokens, const Operand& weight) {
  return apply<Embedding>(tokens.tape(), {tokens, weight}, /*positions=*/false);
}

Var embedding(const Var& tokens, const Operand& weight, const Operand& positions) {
  return apply<Embedding>(tokens.tape(), {tokens, weight, positions}, /*positions=*/true);
}

Var embedding(const Var& tokens, const Operand& weight, const Operand& positions,
              int64_t first_position) {
  check(first_position == 0 || !tokens.tape().options().recording, "embedding: positions from ",
        first_position, " on are for a tape that does not record; one that does begins at 0");
  return apply<Embedding>(tokens.tape(), {tokens, weight, positions}, /*positions=*/true,
                          first_position);
}

}  // namespace spool
