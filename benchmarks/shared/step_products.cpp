#include "shared/step_products.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "spool/kernels/normal.h"
#include "spool/runtime/meta/stream.h"

namespace spool::benchmarks {
namespace {

constexpr NodeId of_no_layer = -1;

// The matrices of a linear layer.
struct Matrices {
  View x, weight, y, bias;
};

Shape x_of(const StepProduct& p) { return {p.rows, p.in}; }
Shape y_of(const StepProduct& p) { return {p.rows, p.out}; }
Shape weight_of(const StepProduct& p) { return {p.out, p.in}; }

Matmul kernel_of(const StepProduct& p, const Matrices& m) {
  switch (p.form) {
    case ProductForm::forward:
      return {.c = Grad(m.y, p.accumulate),
              .a = m.x,
              .b = m.weight,
              .bias = m.bias,
              .b_transposed = true};
    case ProductForm::input_gradient:
      return {.c = Grad(m.x, p.accumulate), .a = m.y, .b = m.weight};
    case ProductForm::weight_gradient:
      break;
  }
  return {.c = Grad(m.weight, p.accumulate), .a = m.y, .b = m.x, .a_transposed = true};
}

// By the kernel itself, with matrices on meta.
Cost cost_of(const StepProduct& p, Stream& meta) {
  const auto type = [&p](ProductForm written) { return p.form == written ? p.c_dtype : p.dtype; };
  const Tensor x({x_of(p), type(ProductForm::input_gradient)}, meta);
  const Tensor weight({weight_of(p), type(ProductForm::weight_gradient)}, meta);
  const Tensor y({y_of(p), type(ProductForm::forward)}, meta);
  const Tensor bias = p.bias ? Tensor({Shape{p.out}, p.dtype}, meta) : Tensor();
  return kernel_of(p, {.x = x, .weight = weight, .y = y, .bias = bias}).cost();
}

struct LinearLayer {
  StepProduct whole = {};  // all rows
  std::vector<ProductForm> gradients = {};
};

LinearLayer layer_of(const Program& program, NodeId id) {
  const Node& node = program.nodes[id];
  const auto spec = [&](size_t i) { return program.values[node.inputs[i]].spec; };
  const bool fits = node.op->kind() == OpKind::product && node.inputs.size() > 1 &&
                    spec(1).shape.rank() == 2 && spec(0).shape.row() == spec(1).shape[1];
  check(fits, "step products: ", node.op->name(), " (node ", id, ") is not a linear layer");
  LinearLayer layer{.whole = {.layer = id,
                              .rows = spec(0).shape.rows(),
                              .in = spec(1).shape[1],
                              .out = spec(1).shape[0],
                              .dtype = spec(0).dtype}};
  const Needs needs = program.needs(id);
  if (needs[0]) layer.gradients.push_back(ProductForm::input_gradient);
  if (needs[1]) layer.gradients.push_back(ProductForm::weight_gradient);
  return layer;
}

// The forms that a layer's products take in turn, for this number of products with all rows: y
// unless they are all gradients, which backward computes together.
std::vector<ProductForm> forms_of(const LinearLayer& layer, size_t passes, bool is_backward) {
  std::vector<ProductForm> forms;
  if (!is_backward || passes > layer.gradients.size()) forms.push_back(ProductForm::forward);
  if (passes > 1 || is_backward) {
    forms.insert(forms.end(), layer.gradients.begin(), layer.gradients.end());
  }
  check(forms.size() == passes, "step products: node ", layer.whole.layer, " has ", passes,
        " products, not ", forms.size());
  return forms;
}

// The result's type and whether it is added to, and whether there is a bias, by the cost.  A result
// of 4 bytes an element is one in f32: gradients in bf16 are never added to.
std::optional<StepProduct> with_cost(StepProduct p, const Cost& cost, Stream& meta) {
  for (const bool accumulate : {false, true}) {
    for (const DType type : {p.dtype, DType::f32}) {
      for (const bool bias : {false, true}) {
        p.c_dtype = type, p.accumulate = accumulate;
        p.bias = bias && p.form == ProductForm::forward;
        const Cost found = cost_of(p, meta);
        if (found.flops == cost.flops && found.bytes == cost.bytes) return p;
      }
    }
  }
  return std::nullopt;
}

// The products that a node launched in one task, in their order.
struct Launched {
  NodeId node = -1;
  std::string_view task = {};
  std::vector<size_t> places = {};  // in all of the step's products
  std::vector<Cost> costs = {};
};

void add_products(const Launched& all, const LinearLayer& layer, Stream& meta,
                  std::vector<StepProduct>& products) {
  const auto weight = static_cast<double>(layer.whole.in * layer.whole.out);
  double flops = 0;
  for (const Cost& cost : all.costs) flops += cost.flops;
  const double passes = flops / (2 * weight * static_cast<double>(layer.whole.rows));
  const auto forms =
      forms_of(layer, static_cast<size_t>(std::lround(passes)), all.task == "backward");
  for (size_t i = 0; i < all.costs.size(); ++i) {
    StepProduct p = layer.whole;
    p.form = forms[i % forms.size()];
    p.rows = std::llround(all.costs[i].flops / (2 * weight));
    const auto found = with_cost(p, all.costs[i], meta);
    check(found.has_value(), "step products: the cost of a product of node ", all.node, " (",
          all.costs[i].flops, " flops, ", all.costs[i].bytes, " bytes) is not that of its form");
    products[all.places[i]] = *found;
  }
}

bool is_product(const TraceSpan& span) {
  return span.activity == Activity::kernel && std::string_view(span.name) == Matmul::name;
}

}  // namespace

StepKernels traced_kernels(const std::vector<TraceSpan>& spans, const Program& program) {
  StepKernels found;
  std::vector<Launched> tasks;
  size_t count = 0;
  for (const TraceSpan& span : spans) {
    if (!is_product(span)) {
      if (span.activity == Activity::kernel) found.other_bytes += span.cost.bytes;
      continue;
    }
    const NodeId node = static_cast<NodeId>(span.context.node);
    check(node >= 0, "step products: the step has a product of no node");
    const std::string_view task = span.context.task;
    auto at = std::ranges::find_if(
        tasks, [&](const Launched& l) { return l.node == node && l.task == task; });
    if (at == tasks.end()) at = tasks.insert(at, {.node = node, .task = task});
    at->places.push_back(count++);
    at->costs.push_back(span.cost);
  }
  found.products.resize(count);
  MetaStream meta(Machine{});
  for (const Launched& task : tasks) {
    add_products(task, layer_of(program, task.node), meta, found.products);
  }
  return found;
}

StepProducts::StepProducts(const std::vector<StepProduct>& products, Stream& stream)
    : stream_(stream) {
  for (const StepProduct& p : products) {
    const auto matrix = [&](ProductForm written, const Shape& shape, NodeId layer) {
      const bool is_written = p.form == written;
      return memory({layer, is_written, shape[0], shape[1], is_written ? p.c_dtype : p.dtype});
    };
    kernels_.push_back(
        kernel_of(p, {.x = matrix(ProductForm::input_gradient, x_of(p), of_no_layer),
                      .weight = matrix(ProductForm::weight_gradient, weight_of(p), p.layer),
                      .y = matrix(ProductForm::forward, y_of(p), of_no_layer),
                      .bias = p.bias ? memory({p.layer, false, 1, p.out, p.dtype}) : View()}));
  }
}

View StepProducts::memory(const Key& key) {
  const auto [layer, is_written, rows, columns, dtype] = key;
  Tensor& t = memory_[key];
  if (!t) {
    t = Tensor({Shape{rows, columns}, dtype}, stream_);
    launch(NormalFill{.out = t, .deviation = 0.1f, .seed = memory_.size()}, stream_);
  }
  return t;
}

void StepProducts::run() {
  for (const Matmul& kernel : kernels_) launch(kernel, stream_);
  stream_.synchronize();
}

}  // namespace spool::benchmarks
