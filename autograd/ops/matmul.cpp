#include "spool/kernels/matmul.h"

#include "spool/autograd/ops.h"
#include "spool/kernels/batched_matmul.h"
#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// Which matrices are multiplied: two; those of a batch, pair by pair; or each of a with the one b.
enum class Pairs : uint8_t { one, each, shared };

Pairs pairs_of(const Shape& a, const Shape& b) {
  if (a.rank() <= 2) return Pairs::one;
  return b.rank() == 2 ? Pairs::shared : Pairs::each;
}

// Indexed by Pairs, then by whether a is transposed, and b.  With one b for all, m is the rows of
// all matrices of an a that is not transposed.
constexpr const char* notations[3][2][2] = {
    {{"mk,kn->mn", "mk,nk->mn"}, {"km,kn->mn", "km,nk->mn"}},
    {{"bmk,bkn->bmn", "bmk,bnk->bmn"}, {"bkm,bkn->bmn", "bkm,bnk->bmn"}},
    {{"mk,kn->mn", "mk,nk->mn"}, {"bkm,kn->bmn", "bkm,nk->bmn"}}};

// Factors as they are stored, and whether they are transposed.
struct Factors {
  View a, b;
  Transposed transposed = {};
};

// The matrices of a tensor stacked into one, row upon row.
View stacked(const View& v) {
  const Shape& s = v.shape();
  const int64_t row = s.row(), above = s.rank() > 3 ? s[0] * s[1] : s[0];
  return {v.data(), {s.rank() > 2 ? Shape{above * s[-2], row} : s, v.dtype()}};
}

struct Product final : Op {
  Pairs pairs;
  Transposed transposed;
  Product(Pairs p, Transposed t) : pairs(p), transposed(t) {}

  const char* name() const override { return "matmul"; }
  OpKind kind() const override { return OpKind::product; }
  std::string attributes() const override {
    return in_words({{"a transposed", transposed.a}, {"b transposed", transposed.b}});
  }
  const char* indices() const override {
    return notations[static_cast<size_t>(pairs)][transposed.a][transposed.b];
  }

  Specs infer(const Specs& in) const override {
    const Spec &a = in[0], &b = in[1];
    check(a.shape.rank() >= 2 && b.shape.rank() >= 2, words(a, b),
          "; matrices have 2 dimensions or more");
    const int64_t M = a.shape[transposed.a ? -1 : -2], K = a.shape[transposed.a ? -2 : -1];
    const int64_t N = b.shape[transposed.b ? -2 : -1];
    const Shape one = transposed.b ? Shape{N, K} : Shape{K, N};
    const Shape each = a.shape.with(-2, one[0]).with(-1, one[1]);
    const bool fits = a.dtype == b.dtype && (b.shape == one || b.shape == each);
    check(fits, words(a, b), "; a second factor of ", Spec{each, a.dtype},
          each == one ? "" : sentence(" or ", Spec{one, a.dtype}), " would fit");
    return {{a.shape.with(-2, M).with(-1, N), a.dtype}};
  }

  void forward(Forward& f) const override {
    auto [a, b] = f.inputs<2>();
    auto [y] = f.outputs<1>();
    multiply(f, y, {a, b, transposed});
  }

  Slots saves(const Needs& needs) const override {
    Slots slots;
    if (needs[0]) slots.push_back(in(1));
    if (needs[1]) slots.push_back(in(0));
    return slots;
  }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    const bool first = b.needs_grad(0);
    if (first) {
      const View right = b.saved_at(0);
      multiply(b, b.grad_input(0),
               transposed.a ? Factors{right, dy, {transposed.b, true}}
                            : Factors{dy, right, {false, !transposed.b}});
    }
    if (!b.needs_grad(1)) return;
    const View left = b.saved_at(first ? 1 : 0);
    const Factors factors = transposed.b ? Factors{dy, left, {true, transposed.a}}
                                         : Factors{left, dy, {!transposed.a, false}};
    if (pairs == Pairs::shared && transposed.a) return add_up(b, b.grad_input(1), factors);
    multiply(b, b.grad_input(1), factors);
  }

 private:
  std::string words(const Spec& a, const Spec& b) const {
    return sentence("matmul: ", a, transposed.a ? " transposed" : "", " by ", b,
                    transposed.b ? " transposed" : "");
  }

  // The rows of all matrices of a are multiplied by the one b, unless they are stored as columns.
  template <class Run>
  void multiply(Run& run, const Grad& c, const Factors& f) const {
    if (pairs == Pairs::one || (pairs == Pairs::shared && !transposed.a)) {
      run.launch(Matmul{.c = c,
                        .a = f.a,
                        .b = f.b,
                        .a_transposed = f.transposed.a,
                        .b_transposed = f.transposed.b});
    } else {
      run.launch(BatchedMatmul{.c = c,
                               .a = f.a,
                               .b = f.b,
                               .a_transposed = f.transposed.a,
                               .b_transposed = f.transposed.b});
    }
  }

  // The sum of the products of all pairs, formed in f32 (f64 for f64).
  static void add_up(Backward& b, const Grad& c, const Factors& f) {
    const DType type = c.view.dtype();
    Tensor memory;
    Grad sum = c;
    if (type != accumulator(type)) {
      memory = b.scratch({c.view.shape(), accumulator(type)});
      sum = Grad(memory, c.accumulate);
      if (c.accumulate) b.launch(Cast{.out = memory, .in = c.view});
    }
    const int64_t rows = f.a.shape()[-2], terms = f.b.shape()[-2];
    const View left = stacked(f.a), right = stacked(f.b);
    const int64_t count = f.a.shape().numel() / std::max<int64_t>(rows * f.a.shape().row(), 1);
    if (count == 0 && !c.accumulate) b.launch(Fill{.out = sum.view});
    for (int64_t i = 0; i < count; ++i, sum.accumulate = true) {
      b.launch(Matmul{.c = sum,
                      .a = left.slice({i * rows, (i + 1) * rows}),
                      .b = right.slice({i * terms, (i + 1) * terms}),
                      .a_transposed = f.transposed.a,
                      .b_transposed = f.transposed.b});
    }
    if (memory) b.launch(Cast{.out = c.view, .in = memory});
  }
};

}  // namespace

Var matmul(const Operand& a, const Operand& b, Transposed transposed) {
  return apply<Product>({a, b}, pairs_of(a.shape(), b.shape()), transposed);
}

}  // namespace spool
