#include "spool/autograd/ops.h"
#include "spool/kernels/bias.h"
#include "spool/kernels/dropout.h"
#include "spool/kernels/matmul.h"

namespace spool {
namespace {

struct Linear final : Op {
  const char* name() const override { return "linear"; }
  OpKind kind() const override { return OpKind::product; }
  const char* indices() const override { return "nk,ok,+o->no"; }

  Specs infer(const Specs& in) const override {
    const Spec &x = in[0], &weight = in[1];
    const bool fits = weight.shape.rank() == 2 && x.shape.row() == weight.shape.row();
    check(fits && x.dtype == weight.dtype, "linear: ", x, " by ", weight);
    const int64_t O = weight.shape[0];
    check(in.size() < 3 || in[2] == Spec{Shape{O}, x.dtype}, "linear: a bias of ", in[2], " for ",
          weight);
    return {{x.shape.with(-1, O), x.dtype}};
  }

  void forward(Forward& f) const override {
    auto [x, weight, bias] = f.inputs<3>();
    auto [y] = f.outputs<1>();
    f.launch(Matmul{.c = y, .a = x, .b = weight, .bias = bias, .b_transposed = true});
  }

  Slots saves(const Needs& needs) const override {
    Slots slots;
    if (needs[0]) slots.push_back(in(1));
    if (needs[1]) slots.push_back(in(0));
    return slots;
  }

  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    if (b.needs_grad(0)) b.launch(Matmul{.c = b.grad_input(0), .a = dy, .b = b.saved_at(0)});
    if (b.needs_grad(1)) {
      const View x = b.saved_at(b.needs_grad(0) ? 1 : 0);
      const View rows(dy.data(), {Shape{dy.shape().rows(), dy.shape().row()}, dy.dtype()});
      const View flat(x.data(), {Shape{x.shape().rows(), x.shape().row()}, x.dtype()});
      b.launch(Matmul{.c = b.grad_input(1), .a = rows, .b = flat, .a_transposed = true});
    }
    if (Grad dbias = b.grad_input(2)) b.launch(BiasBackward{.dbias = dbias, .dy = dy});
  }
};

// What a pair of A and B adds to: columns of y, by rows of B.
struct Target {
  Range columns = {}, rows = {};
};

// y = x W^T + b, and of each target g: y[:, columns g] += scale drop_g(x) A_g^T B_g^T, where R rows
// of A are A_g.  Backward forms x A^T again: it is a small part of the products, and would take
// memory.
struct LowRankLinear final : Op {
  std::vector<Target> targets;
  double scale;
  float p;
  int at_a;  // place of A among the inputs; B is the next
  LowRankLinear(const LowRank& adapter, float probability, bool has_bias)
      : scale(adapter.scale), p(probability), at_a(has_bias ? 3 : 2) {
    int64_t row = 0;
    for (const Range columns : adapter.columns) {
      targets.push_back({.columns = columns, .rows = {row, row + columns.size()}});
      row += columns.size();
    }
  }

  const char* name() const override { return "linear"; }
  OpKind kind() const override { return OpKind::product; }
  std::string attributes() const override {
    std::string words = in_words({{"scale", scale}, {"dropout", p}});
    for (const Target& t : targets) {
      words += ", columns " + std::to_string(t.columns.begin) + " to " +
               std::to_string(t.columns.end) + " adapted";
    }
    return words;
  }
  const char* indices() const override {
    return at_a == 3 ? "nK,OK,O,GK,BR->nO" : "nK,OK,GK,BR->nO";
  }

  Specs infer(const Specs& in) const override {
    const Specs base = at_a == 3 ? Specs{in[0], in[1], in[2]} : Specs{in[0], in[1]};
    const Specs out = Linear().infer(base);
    const Spec &x = in[0], &a = in[at_a], &b = in[at_a + 1];
    const auto G = static_cast<int64_t>(targets.size());
    constexpr int64_t max_targets = 15;  // whose dropout has numbers of its own
    check(G > 0 && G <= max_targets, "linear: adapters of ", G, " parts of a result; 1 to ",
          max_targets, " are possible");
    const bool fits = a.shape.rank() == 2 && b.shape.rank() == 2 &&
                      a == Spec{Shape{G * b.shape[1], x.shape.row()}, x.dtype} &&
                      b == Spec{Shape{targets.back().rows.end, b.shape[1]}, x.dtype};
    check(fits && b.shape[1] > 0, "linear: ", x, " by ", in[1], ", adapted by ", a, " and ", b,
          " at ", G, " places");
    for (const Target& target : targets) {
      const Range columns = target.columns;
      check(columns.begin >= 0 && columns.size() > 0 && columns.end <= out[0].shape.row(),
            "linear: an adapter of columns ", columns.begin, " to ", columns.end, " of ", out[0]);
    }
    return out;
  }

  void forward(Forward& f) const override {
    const auto in = f.inputs<5>();
    const auto [y] = f.outputs<1>();
    const View &x = in[0], &a = in[static_cast<size_t>(at_a)],
               &b = in[static_cast<size_t>(at_a) + 1];
    f.launch(Matmul{
        .c = y, .a = x, .b = in[1], .bias = at_a == 3 ? in[2] : View(), .b_transposed = true});
    const Tensor h = reduced(f, x, a, f.first_element(x));
    for (size_t g = 0; g < targets.size(); ++g) {
      f.launch(Matmul{.c = add_to(columns_of(y, targets[g].columns)),
                      .a = columns_of(h, of_target(g, a)),
                      .b = b.slice(targets[g].rows),
                      .b_transposed = true,
                      .alpha = scale,
                      .a_row = h.shape().row(),
                      .c_row = y.shape().row()});
    }
  }

  Slots saves(const Needs& needs) const override {
    Slots slots{in(at_a), in(at_a + 1)};
    if (needs[0]) slots.push_back(in(1));
    if (needs[1] || needs[at_a] || needs[at_a + 1]) slots.push_back(in(0));
    return slots;
  }

  void backward(Backward& k) const override {
    const auto [dy] = k.grad_outputs<1>();
    const bool needs_x = k.needs_grad(1) || k.needs_grad(at_a) || k.needs_grad(at_a + 1);
    Saved s{.dy = flat(dy), .a = k.saved_at(0), .b = k.saved_at(1)};
    if (needs_x) s.x = flat(k.saved_at(k.needs_grad(0) ? 3 : 2));
    const Shape of_x = dy.shape().with(-1, s.a.shape()[1]);
    s.first = k.first_element({dy.data(), {of_x, dy.dtype()}});
    Grad dx = k.grad_input(0);
    if (dx) k.launch(Matmul{.c = dx, .a = dy, .b = k.saved_at(2)});
    if (Grad dweight = k.grad_input(1)) {
      k.launch(Matmul{.c = dweight, .a = s.dy, .b = s.x, .a_transposed = true});
    }
    if (at_a == 3) {
      if (Grad dbias = k.grad_input(2)) k.launch(BiasBackward{.dbias = dbias, .dy = dy});
    }
    if (Grad db = k.grad_input(at_a + 1)) backward_of_b(k, s, db);
    const Grad da = k.grad_input(at_a);
    if (dx) dx.accumulate = true;  // to what the weight gives
    if (dx || da) backward_of_a(k, s, da, dx);
  }

 private:
  static View flat(const View& v) {
    return {v.data(), {Shape{v.shape().rows(), v.shape().row()}, v.dtype()}};
  }
  struct Saved {
    View dy, x = {}, a, b;  // dy and x as matrices; x is absent if nothing reads it
    int64_t first = 0;      // element of x, in the whole
  };
  // Rows of A, and columns of x A^T, of a target.
  Range of_target(size_t g, const View& a) const {
    const int64_t R = a.shape()[0] / std::ssize(targets);
    return {static_cast<int64_t>(g) * R, static_cast<int64_t>(g + 1) * R};
  }

  // drop_g(x) A_g^T of all targets, (N, G R).
  Tensor reduced(OpRun& run, const View& x, const View& a, int64_t first) const {
    Tensor h = run.scratch({Shape{x.shape().rows(), a.shape()[0]}, x.dtype()});
    if (p == 0) {
      run.launch(Matmul{.c = h, .a = x, .b = a, .b_transposed = true});
      return h;
    }
    const Tensor dropped = run.scratch(flat(x).spec());
    for (size_t g = 0; g < targets.size(); ++g) {
      drop(run, dropped, x, g, first);
      run.launch(Matmul{.c = columns_of(h, of_target(g, a)),
                        .a = dropped,
                        .b = a.slice(of_target(g, a)),
                        .b_transposed = true,
                        .c_row = h.shape().row()});
    }
    return h;
  }

  void backward_of_b(Backward& k, const Saved& s, const Grad& db) const {
    const Tensor h = reduced(k, s.x, s.a, s.first);
    for (size_t g = 0; g < targets.size(); ++g) {
      k.launch(Matmul{.c = db.slice(targets[g].rows),
                      .a = columns_of(s.dy, targets[g].columns),
                      .b = columns_of(h, of_target(g, s.a)),
                      .a_transposed = true,
                      .alpha = scale,
                      .a_row = s.dy.shape().row(),
                      .b_row = h.shape().row()});
    }
  }

  // What the gradient of x A^T gives to those of A and x.
  void backward_of_a(Backward& k, const Saved& s, const Grad& da, const Grad& dx) const {
    const Tensor dh = k.scratch({Shape{s.dy.shape().rows(), s.a.shape()[0]}, s.dy.dtype()});
    for (size_t g = 0; g < targets.size(); ++g) {
      k.launch(Matmul{.c = columns_of(dh, of_target(g, s.a)),
                      .a = columns_of(s.dy, targets[g].columns),
                      .b = s.b.slice(targets[g].rows),
                      .alpha = scale,
                      .a_row = s.dy.shape().row(),
                      .c_row = dh.shape().row()});
    }
    if (p > 0) return backward_of_dropped(k, s, da, dx, dh);
    if (da) k.launch(Matmul{.c = da, .a = dh, .b = s.x, .a_transposed = true});
    if (dx) k.launch(Matmul{.c = dx, .a = dh, .b = s.a});
  }

  void backward_of_dropped(Backward& k, const Saved& s, const Grad& da, const Grad& dx,
                           const View& dh) const {
    const Tensor part = k.scratch({Shape{s.dy.shape().rows(), s.a.shape()[1]}, s.dy.dtype()});
    for (size_t g = 0; g < targets.size(); ++g) {
      const Range rows = of_target(g, s.a);
      const Matmul mine{.c = {}, .a = columns_of(dh, rows), .b = {}, .a_row = dh.shape().row()};
      if (da) {
        drop(k, part, s.x, g, s.first);
        Matmul to_a = mine;
        to_a.c = da.slice(rows), to_a.b = part, to_a.a_transposed = true;
        k.launch(to_a);
      }
      if (!dx) continue;
      Matmul to_x = mine;
      to_x.c = part, to_x.b = s.a.slice(rows);
      k.launch(to_x);
      drop(k, dx, part, g, s.first);
    }
  }

  // Each target draws numbers of its own, beyond those of nodes.
  void drop(OpRun& run, const Grad& to, const View& from, size_t g, int64_t first) const {
    constexpr uint32_t max_nodes = uint32_t{1} << 28;
    run.launch(Dropout{
        .y = to,
        .x = from,
        .random = run.random(),
        .node = static_cast<uint32_t>(run.node()) + max_nodes * static_cast<uint32_t>(g + 1),
        .first = first,
        .p = p});
  }
};

float dropout_of(const LowRank& adapter, const Var& x) {
  check(adapter.dropout >= 0 && adapter.dropout < 1, "linear: a probability of dropout of ",
        adapter.dropout, " is not in [0, 1)");
  return x.tape().options().training ? adapter.dropout : 0;
}

}  // namespace

Var linear(const Var& x, const Operand& weight) { return apply<Linear>(x.tape(), {x, weight}); }

Var linear(const Var& x, const Operand& weight, const Operand& bias) {
  return apply<Linear>(x.tape(), {x, weight, bias});
}

Var linear(const Var& x, const Operand& weight, const LowRank& adapter) {
  return apply<LowRankLinear>(x.tape(), {x, weight, adapter.a, adapter.b}, adapter,
                              dropout_of(adapter, x), /*has_bias=*/false);
}

Var linear(const Var& x, const Operand& weight, const Operand& bias, const LowRank& adapter) {
  return apply<LowRankLinear>(x.tape(), {x, weight, bias, adapter.a, adapter.b}, adapter,
                              dropout_of(adapter, x), /*has_bias=*/true);
}

}  // namespace spool
