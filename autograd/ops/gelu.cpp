#include "spool/kernels/gelu.h"

#include "spool/autograd/ops.h"

namespace spool {
namespace {

struct Gelu final : Op {
  GeluForm form;
  explicit Gelu(GeluForm f) : form(f) {}

  const char* name() const override { return "gelu"; }
  OpKind kind() const override { return OpKind::activation; }
  std::string attributes() const override { return in_words({{"form", spool::name(form)}}); }
  const char* indices() const override { return "nc->nc"; }
  Specs infer(const Specs& in) const override { return {in[0]}; }

  void forward(Forward& f) const override {
    auto [x] = f.inputs<1>();
    auto [y] = f.outputs<1>();
    f.launch(GeluForward{.y = y, .x = x, .form = form});
  }

  Slots saves(const Needs&) const override { return {in(0)}; }

  void backward(Backward& b) const override {
    auto [x] = b.saved<1>();
    auto [dy] = b.grad_outputs<1>();
    b.launch(GeluBackward{.dx = b.grad_input_over(0, 0), .dy = dy, .x = x, .form = form});
  }
};

}  // namespace

Var gelu(const Var& x, GeluForm form) { return apply<Gelu>(x.tape(), {x}, form); }

}  // namespace spool
