#include "spool/kernels/cross_entropy.h"

#include "spool/autograd/ops/target_loss.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/reduce.h"

namespace spool {
namespace {

struct CrossEntropyOp final : Op {
  TargetLoss loss;
  explicit CrossEntropyOp(const LossOptions& l) : loss{l} {}

  const char* name() const override { return "cross_entropy"; }
  const char* indices() const override { return loss.is_reduced() ? "nC,n->" : "nC,n->n"; }
  std::string attributes() const override { return loss.attributes(); }
  bool needs_loss_scale() const override { return loss.is_mean(); }

  Specs infer(const Specs& in) const override {
    const Spec& logits = in[0];
    const int64_t vocabulary = loss.options.options.vocabulary;
    check(vocabulary <= logits.shape.row(), name(), ": a vocabulary of ", vocabulary,
          " is more than the columns of ", logits);
    return {loss.infer(name(), logits, in[1])};
  }

  void forward(Forward& f) const override {
    auto [logits, targets] = f.inputs<2>();
    auto [y] = f.outputs<1>();
    const Tensor each =
        loss.is_reduced() ? f.scratch({Shape{targets.numel()}, y.dtype()}) : Tensor();
    f.launch(CrossEntropy{.logits = logits,
                          .targets = targets,
                          .losses = each ? each.view() : y,
                          .options = loss.options.options});
    if (!each) return;
    Tensor memory;
    const View scale = loss.scale(f, targets, y.dtype(), memory);
    f.launch(SumAll{.out = y, .x = each, .by = scale});
  }

  Slots saves(const Needs&) const override { return {in(0), in(1)}; }

  // The kernel turns logits into their gradient, so it works on a copy.
  void backward(Backward& b) const override {
    auto [logits, targets] = b.saved<2>();
    auto [dloss] = b.grad_outputs<1>();
    const Grad dlogits = b.grad_input(0);
    const bool in_place = !dlogits.accumulate && dlogits.view.dtype() == logits.dtype();
    const Tensor scratch = in_place ? Tensor() : b.scratch(logits.spec());
    const View copy = in_place ? dlogits.view : scratch.view();
    b.launch(Cast{.out = copy, .in = logits});
    Tensor memory;
    b.launch(CrossEntropy{.logits = copy,
                          .targets = targets,
                          .gradient = true,
                          .scale = loss.scale(b, targets, dloss.dtype(), memory),
                          .upstream = dloss,
                          .options = loss.options.options});
    if (!in_place) b.launch(Add{.out = dlogits, .a = copy});
  }
};

}  // namespace

Var cross_entropy(const Operand& logits, const Operand& targets, const LossOptions& loss) {
  return apply<CrossEntropyOp>({logits, targets}, loss);
}

}  // namespace spool
