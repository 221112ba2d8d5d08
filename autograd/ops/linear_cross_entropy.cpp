#include "spool/autograd/notation/part_of_op.h"
#include "spool/autograd/ops/rows.h"
#include "spool/autograd/ops/target_loss.h"
#include "spool/autograd/ops/vocabulary.h"
#include "spool/kernels/cross_entropy_part.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/matmul.h"
#include "spool/kernels/reduce.h"

namespace spool {
namespace {

// One chunk of logits after another: computed, turned into losses or their gradient, and freed.
template <class Pass>
struct Chunks {
  Pass& pass;
  View x, weight, targets;  // (N, C), (V, C), (N)
  View scale = {};
  CrossEntropyOptions options = {};

  // Memory for the results; absent ones are not computed.
  struct Into {
    View losses = {};
    Grad dx = {}, dweight = {};
    View upstream = {};
    float upstream_known = 0;
  };

  void run(Into into) {
    const int64_t N = x.shape()[0], V = weight.shape()[0];
    if (N == 0 && into.dweight && !into.dweight.accumulate) {
      pass.launch(Fill{.out = into.dweight.view});
    }
    for (const Range rows : split(N, pass.chunks())) {
      const Tensor logits = pass.scratch({Shape{rows.size(), V}, x.dtype()});
      pass.launch(Matmul{.c = logits, .a = x.slice(rows), .b = weight, .b_transposed = true});
      const bool per_row = into.upstream && into.upstream.numel() == N && N > 1;
      const CrossEntropy rest{.logits = logits,
                              .targets = targets.slice(rows),
                              .losses = into.losses ? into.losses.slice(rows) : View(),
                              .gradient = into.dx || into.dweight,
                              .scale = scale,
                              .upstream = per_row ? into.upstream.slice(rows) : into.upstream,
                              .upstream_known = into.upstream_known,
                              .options = options};
      if (const PartOfIndex* part = part_of_vocabulary(pass.place())) {
        join(rest, *part);
      } else {
        pass.launch(rest);
      }
      if (into.dx) pass.launch(Matmul{.c = into.dx.slice(rows), .a = logits, .b = weight});
      if (!into.dweight) continue;
      pass.launch(Matmul{.c = into.dweight, .a = logits, .b = x.slice(rows), .a_transposed = true});
      into.dweight.accumulate = true;
    }
  }

  // The same of some columns of the logits, with a few numbers a row from the parts of the others.
  void join(const CrossEntropy& k, const PartOfIndex& part) {
    const VocabularyPart own = own_vocabulary(pass.place());
    const int64_t rows = k.targets.numel();
    const int64_t numbers = CrossEntropyStatistics::numbers(options);
    const DType type = accumulator(x.dtype());
    const Tensor mine = pass.scratch({Shape{rows, numbers}, type});
    const Tensor all = pass.scratch({Shape{part.of, rows, numbers}, type});
    pass.launch(CrossEntropyStatistics{.statistics = mine,
                                       .logits = k.logits,
                                       .targets = k.targets,
                                       .part = own,
                                       .options = options});
    check(pass.place()->exchange,
          "linear_cross_entropy: a part of the vocabulary, and no others to "
          "exchange numbers with; Place::exchange is absent");
    pass.place()->exchange->all_gather(part.index, mine, all, pass.stream());
    pass.launch(CrossEntropyJoined{.logits = k.logits,
                                   .statistics = all,
                                   .targets = k.targets,
                                   .losses = k.losses,
                                   .gradient = k.gradient,
                                   .scale = k.scale,
                                   .upstream = k.upstream,
                                   .upstream_known = k.upstream_known,
                                   .part = own,
                                   .options = options});
  }
};

// If `early`, forward computes the gradient of the loss: x's as output 1, the weight's where it
// belongs.  If the loss's own gradient turns out not to be 1, backward scales x's gradient, and
// computes what the weight's lacks.
struct LinearCrossEntropy final : Op {
  TargetLoss loss;
  bool early;
  LinearCrossEntropy(const LossOptions& l, bool e) : loss{l}, early(e) {}

  const char* name() const override { return "linear_cross_entropy"; }
  OpKind kind() const override { return OpKind::product; }
  const char* indices() const override {
    if (!loss.is_reduced()) return "nC,v*C,n->n";
    return early ? "nC,v*C,n->,nC" : "nC,v*C,n->";
  }
  std::string attributes() const override {
    return loss.attributes() + ", " + in_words({{"gradient in forward", early}});
  }
  bool recomputable() const override { return !early; }
  bool needs_loss_scale() const override { return loss.is_mean(); }

  Specs infer(const Specs& in) const override {
    const Spec &x = in[0], &weight = in[1], &targets = in[2];
    const bool fits = weight.shape.rank() == 2 && weight.shape.row() == x.shape.row();
    check(fits && weight.dtype == x.dtype, name(), ": ", x, " by ", weight);
    const Spec y = loss.infer(name(), x, targets);
    return early ? Specs{y, x} : Specs{y};
  }

  int64_t max_chunks(const Specs& in) const override {
    return std::max<int64_t>(in[0].shape.rows(), 1);
  }

  void forward(Forward& f) const override {
    auto [x, weight, targets] = f.inputs<3>();
    auto [y] = f.outputs<1>();
    Tensor sum;
    const View scale = loss.scale(f, targets, y.dtype(), sum);
    Chunks<Forward> chunks{f, as_rows(x), weight, as_numbers(targets), scale, loss.options.options};
    if (!loss.is_reduced()) return chunks.run({.losses = as_numbers(y)});
    const Tensor losses = f.scratch({Shape{x.shape().rows()}, y.dtype()});
    if (early) {
      const View dx = f.outputs<2>()[1];
      chunks.run({.losses = losses, .dx = as_rows(dx), .dweight = f.grad_input(1)});
    } else {
      chunks.run({.losses = losses});
    }
    f.launch(SumAll{.out = y, .x = losses, .by = scale});
  }

  Slots saves(const Needs&) const override {
    return early ? Slots{in(0), in(1), in(2), out(1)} : Slots{in(0), in(1), in(2)};
  }

  void backward(Backward& b) const override {
    if (early && b.grad_output_is_one(0)) return b.pass_saved(0, 3);
    auto [x, weight, targets] = b.saved<3>();
    const View early_dx = early ? b.saved_at(3) : View();
    auto [dloss] = b.grad_outputs<1>();
    Tensor sum;
    const View scale = loss.scale(b, targets, dloss.dtype(), sum);
    Chunks<Backward> chunks{b,     as_rows(x),          weight, as_numbers(targets),
                            scale, loss.options.options};
    const Grad dx = b.grad_input(0), dweight = b.grad_input(1);
    if (early) {
      if (dx) b.launch(Scale{.out = dx, .a = early_dx, .by = dloss});
      return chunks.run({.dweight = dweight, .upstream = dloss, .upstream_known = 1});
    }
    chunks.run({.dx = dx ? Grad(as_rows(dx.view), dx.accumulate) : Grad(),
                .dweight = dweight,
                .upstream = as_numbers(dloss)});
  }
};

}  // namespace

Var linear_cross_entropy(const Var& x, const Operand& weight, const Var& targets,
                         const LossOptions& loss) {
  Tape& tape = x.tape();
  const int64_t vocabulary = loss.options.vocabulary;
  check(weight.shape().rank() == 0 || vocabulary <= weight.shape()[0],
        "linear_cross_entropy: a vocabulary of ", vocabulary, " is more than the rows of ",
        weight.spec());
  const bool early = tape.forms_gradients_in_forward() && loss.reduction != Reduction::none &&
                     (tape.needs_grad(x) || tape.needs_grad(weight));
  return apply<LinearCrossEntropy>(tape, {x, weight, targets}, loss, early);
}

}  // namespace spool
