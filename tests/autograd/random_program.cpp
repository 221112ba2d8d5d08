#include "tests/autograd/random_program.h"

#include <algorithm>
#include <cmath>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"

namespace spool::testing {
namespace {

// out[i] (+)= a[i] b[i], all f32.
struct ProductKernel {
  static constexpr const char* name = "product";
  Grad out;
  View a, b;
  Cost cost() const { return {static_cast<double>(a.numel()), bytes(out, a, b)}; }
};

// out[i] = 1 / (1 + e^-x[i]), or with its gradient: dx[i] (+)= dy[i] y[i] (1 - y[i]), all f32.
struct SigmoidKernel {
  static constexpr const char* name = "sigmoid";
  Grad out;
  View x, y = {}, dy = {};
  Cost cost() const { return {4.0 * static_cast<double>(out.view.numel()), bytes(out, x, y, dy)}; }
};

template <class F>
void put_each(const Grad& out, const F& f) {
  auto* const to = out.view.as<float>();
  for (int64_t i = 0; i < out.view.numel(); ++i) to[i] = (out.accumulate ? to[i] : 0) + f(i);
}

void run(const ProductKernel& k, CpuStream&) {
  put_each(k.out, [&](int64_t i) { return k.a.as<float>()[i] * k.b.as<float>()[i]; });
}

void run(const SigmoidKernel& k, CpuStream&) {
  if (k.x)
    return put_each(k.out, [&](int64_t i) { return 1 / (1 + std::exp(-k.x.as<float>()[i])); });
  put_each(k.out, [&](int64_t i) {
    const float y = k.y.as<float>()[i];
    return k.dy.as<float>()[i] * y * (1 - y);
  });
}

// An op with places in the midst of its work.
struct PlacedOp : Op {
  const AtPlace& at_place;
  explicit PlacedOp(const AtPlace& at) : at_place(at) {}
  void place(const char* name) const {
    if (at_place) at_place(name);
  }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }
};

// y = a b; saves both.
struct MultiplyOp final : PlacedOp {
  using PlacedOp::PlacedOp;
  const char* name() const override { return "multiply"; }
  const char* indices() const override { return "nc,nc->nc"; }
  void forward(Forward& f) const override {
    auto [a, b] = f.inputs<2>();
    f.launch(ProductKernel{.out = f.outputs<1>()[0], .a = a, .b = b});
  }
  Slots saves(const Needs& needs) const override {
    Slots slots;
    if (needs[0]) slots.push_back(in(1));
    if (needs[1]) slots.push_back(in(0));
    return slots;
  }
  void backward(Backward& b) const override {
    auto [dy] = b.grad_outputs<1>();
    const View y = b.needs_grad(0) ? b.saved_at(0) : View();
    place("in backward, with one saved tensor");
    if (const Grad da = b.grad_input(0)) b.launch(ProductKernel{.out = da, .a = dy, .b = y});
    place("in backward, with one gradient");
    if (!b.needs_grad(1)) return;
    const View x = b.saved_at(b.needs_grad(0) ? 1 : 0);
    b.launch(ProductKernel{.out = b.grad_input(1), .a = dy, .b = x});
  }
};

// y = 1 / (1 + e^-x); saves its output.
struct SigmoidOp final : PlacedOp {
  using PlacedOp::PlacedOp;
  const char* name() const override { return "sigmoid"; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    f.launch(SigmoidKernel{.out = f.outputs<1>()[0], .x = x});
  }
  Slots saves(const Needs&) const override { return {out(0)}; }
  void backward(Backward& b) const override {
    auto [y] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(SigmoidKernel{.out = b.grad_input_over(0, 0), .x = {}, .y = y, .dy = dy});
  }
};

// Two outputs, x/4 and 3x/4; saves nothing.
struct PartsOp final : PlacedOp {
  using PlacedOp::PlacedOp;
  const char* name() const override { return "parts"; }
  const char* indices() const override { return "nc->nc,nc"; }
  Specs infer(const Specs& in) const override { return {in[0], in[0]}; }
  bool differentiable(int) const override { return true; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y, z] = f.outputs<2>();
    f.launch(Scale{.out = y, .a = x, .factor = 0.25});
    place("between two kernels");
    const Tensor scratch = f.scratch(x.spec());
    f.launch(Scale{.out = scratch, .a = x, .factor = 0.75});
    place("with scratch memory");
    f.launch(Scale{.out = z, .a = scratch});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    auto [dy, dz] = b.grad_outputs<2>();
    Grad dx = b.grad_input(0);
    if (dy) b.launch(Scale{.out = dx, .a = dy, .factor = 0.25});
    place("in backward, with one contribution");
    dx.accumulate |= bool(dy);
    if (dz) b.launch(Scale{.out = dx, .a = dz, .factor = 0.75});
  }
};

// y = x; passes its gradient on.
struct CopyOp final : PlacedOp {
  using PlacedOp::PlacedOp;
  const char* name() const override { return "copy"; }
  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    f.launch(Scale{.out = f.outputs<1>()[0], .a = x});
  }
  Slots saves(const Needs&) const override { return {}; }
  void backward(Backward& b) const override {
    b.pass(0);
    place("in backward, with a gradient passed on");
  }
};

// Appends random ops to the program's tape.
class Drawing {
 public:
  Drawing(Program& program, Random& random) : p_(program), random_(random) {}

  void draw(int ops) {
    const Var tokens = p_.tape->input(p_.inputs[0]), targets = p_.tape->input(p_.inputs[1]);
    values_ = {p_.tape->input(p_.inputs[2], p_.input_needs_grad)};
    values_.push_back(embedding(tokens, weight({Program::V, Program::C})));
    while (static_cast<int>(p_.tape->nodes().size()) < ops) add_op();
    Var loss = draw_loss(targets);
    if (one_in(2)) loss = add(loss, one_in(2) ? scale(loss, 0.5) : draw_loss(targets));
    p_.loss = loss.id();
  }

 private:
  bool one_in(uint32_t n) { return random_.next() % n == 0; }

  // The last value, or an earlier one.
  Var some_value() {
    if (!one_in(3)) return values_.back();
    return values_[random_.next() % values_.size()];
  }

  Parameter& weight(const Shape& shape) {
    std::vector<Parameter*> alike;
    for (Parameter& p : p_.parameters) {
      if (p.data.shape() == shape) alike.push_back(&p);
    }
    if (!alike.empty() && one_in(3)) return *alike[random_.next() % alike.size()];
    // The loss always depends on something that needs a gradient: its head.
    const bool trainable = shape == Shape{Program::V, Program::C} || !one_in(6);
    p_.parameters.push_back({.name = "weight",
                             .data = Tensor({shape, DType::f32}, *p_.stream),
                             .trainable = trainable});
    return p_.parameters.back();
  }

  void add_op() {
    constexpr int64_t C = Program::C;
    const Var x = some_value();
    switch (random_.next() % 12) {
      case 0:
        return add_value(linear(x, weight({C, C}), weight({C})));
      case 1:
        return add_value(gelu(linear(x, weight({C, C}))));
      case 2:
        return add_value(layer_norm(x, weight({C}), weight({C})));
      case 3:
        return add_value(attention(linear(x, weight({3 * C, C})), {.query = 2, .key = 2}));
      case 4:
        return add_value(dropout(x, 0.2f));
      case 5:
        return add_value(add(x, some_value()));
      case 6:
        return add_value(scale(x, 0.75));
      case 7:
        return add_value(apply<MultiplyOp>(*p_.tape, {sigmoid(x), some_value()}, p_.at_place));
      case 8: {
        const Var y = sigmoid(x);
        return add_value(apply<MultiplyOp>(*p_.tape, {y, y}, p_.at_place));
      }
      case 9: {
        Parameter& mask = weight({Program::B, Program::T, C});
        return add_value(apply<MultiplyOp>(*p_.tape, {sigmoid(x), mask}, p_.at_place));
      }
      case 10:
        return add_parts(x);
      default:
        return add_value(apply<CopyOp>(*p_.tape, {x}, p_.at_place));
    }
  }

  void add_value(Var v) { values_.push_back(std::move(v)); }
  Var sigmoid(const Var& x) { return apply<SigmoidOp>(*p_.tape, {x}, p_.at_place); }
  void add_parts(const Var& x) {
    const std::array<Operand, 1> operand{x};
    for (const Var& part : p_.tape->apply(std::make_unique<PartsOp>(p_.at_place), operand)) {
      add_value(part);
    }
  }
  Var draw_loss(const Var& targets) {
    const Var h = layer_norm(some_value(), weight({Program::C}), weight({Program::C}));
    return linear_cross_entropy(h, weight({Program::V, Program::C}), targets);  // often tied
  }

  Program& p_;
  Random& random_;
  std::vector<Var> values_;
};

}  // namespace

Program::Program(Random& random, const ProgramOptions& options) {
  const auto make = [&](const Shape& shape, DType type) { return Tensor({shape, type}, *stream); };
  inputs = {make({B, T}, DType::i32), make({B, T}, DType::i32), make({B, T, C}, DType::f32)};
  input_needs_grad = random.next() % 2 == 0;
  tape = std::make_unique<Tape>(*stream, TapeOptions{.backward_follows = options.backward_follows,
                                                     .loss_scale = make({1}, DType::f32),
                                                     .random = make({4}, DType::i32)});
  Drawing(*this, random).draw(options.ops);
}

size_t Program::index_of(const Parameter* p) const {
  const auto at = std::ranges::find(parameters, p, [](const Parameter& each) { return &each; });
  return static_cast<size_t>(at - parameters.begin());
}

NodeId Program::recomputable_nodes() const {
  const auto& nodes = tape->nodes();
  const auto at = std::ranges::find_if(nodes, [](const Node& n) { return !n.op->recomputable(); });
  return static_cast<NodeId>(at - nodes.begin());
}

}  // namespace spool::testing
