#include "spool/autograd/ops.h"
#include "spool/autograd/ops/dimensions.h"
#include "spool/kernels/copy.h"

namespace spool {
namespace {

using Order = std::array<int, Shape::max_rank>;

Shape permuted(const Shape& x, const Order& order) {
  Shape y = x;
  for (int d = 0; d < x.rank(); ++d) y = y.with(d, x[order[static_cast<size_t>(d)]]);
  return y;
}

// Whether the dimensions of more than one element follow each other as before.
bool stays_in_order(const Shape& x, const Order& order) {
  int last = -1;
  for (int d = 0; d < x.rank(); ++d) {
    const int from = order[static_cast<size_t>(d)];
    if (x[from] == 1) continue;
    if (from < last) return false;
    last = from;
  }
  return true;
}

struct PermuteOp final : Op {
  int rank;
  Order order;
  std::string notation;  // "abc->acb"
  PermuteOp(int r, const Order& o) : rank(r), order(o) {
    const std::string letters = std::string("abcd").substr(0, static_cast<size_t>(rank));
    notation = letters + "->";
    for (size_t d = 0; d < letters.size(); ++d) {
      notation += letters[static_cast<size_t>(order[d])];
    }
  }

  const char* name() const override { return "permute"; }
  const char* indices() const override { return notation.c_str(); }
  std::string attributes() const override { return in_words({{"order", notation}}); }
  Specs infer(const Specs& in) const override {
    return {{permuted(in[0].shape, order), in[0].dtype}};
  }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(Permute{.out = y, .in = x, .order = order});
  }

  Slots saves(const Needs&) const override { return {}; }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    Order inverse{};
    for (int d = 0; d < rank; ++d) {
      inverse[static_cast<size_t>(order[static_cast<size_t>(d)])] = d;
    }
    b.launch(Permute{.out = b.grad_input(0), .in = dy, .order = inverse});
  }
};

// Permutes x; `order` has all of its dimensions.
Var applied(const Operand& x, const Order& order) {
  const Shape& shape = x.shape();
  if (stays_in_order(shape, order)) return reshape(x, permuted(shape, order));
  return apply<PermuteOp>({x}, shape.rank(), order);
}

}  // namespace

Var transpose(const Operand& x, int dim, int other) {
  Order order{0, 1, 2, 3};
  const int a = dimension("transpose", x.spec(), dim), b = dimension("transpose", x.spec(), other);
  std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  return applied(x, order);
}

Var permute(const Operand& x, std::span<const int> dims) {
  const int rank = x.shape().rank();
  check(dims.size() == static_cast<size_t>(rank), "permute: an order of ", dims.size(),
        " dimensions does not fit the ", rank, " of ", x.spec());
  Order order{};
  unsigned seen = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    order[d] = dimension("permute", x.spec(), dims[d]);
    check((seen >> order[d] & 1) == 0, "permute: dimension ", order[d], " of ", x.spec(),
          " is in the order twice");
    seen |= 1u << order[d];
  }
  return applied(x, order);
}

}  // namespace spool
