#pragma once

// The matrix products of a training step, as a rehearsal of it launches them, and their kernels on
// memory of their own, to run them without the rest of the step.
//
// A linear layer is y = x w^T (+ bias), with x (rows, in), w (out, in), y (rows, out); the
// gradients are dx = dy w and dw (+)= dy^T x.  Layers in chunks have a product for each.

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "spool/autograd/program.h"
#include "spool/kernels/matmul.h"
#include "spool/runtime/trace.h"

namespace spool::benchmarks {

enum class ProductForm : uint8_t { forward, input_gradient, weight_gradient };

struct StepProduct {
  ProductForm form = ProductForm::forward;
  NodeId layer = -1;  // of the step's tape; its weight is the layer's
  int64_t rows = 0, in = 0, out = 0;
  DType dtype = DType::f32;    // of the factors and the bias
  DType c_dtype = DType::f32;  // of the result
  bool bias = false, accumulate = false;
  bool operator==(const StepProduct&) const = default;
};

struct StepKernels {
  std::vector<StepProduct> products = {};  // in the step's order
  double other_bytes = 0;                  // that the step's other kernels move, by their costs
};

// What a step of one micro-batch launches: its spans, of a rehearsal on meta, and the program of
// its tape.  A span says a product's cost; its layer, the order of its products and what needs a
// gradient tell the form.  Throws if a product is not one of a linear layer, or has another cost.
StepKernels traced_kernels(const std::vector<TraceSpan>& spans, const Program& program);

// The kernels of products, on memory of the stream.  Each layer has its own weight and gradient;
// layers share activations of one shape.  What is read is never written, so that numbers do not
// grow from run to run.
class StepProducts {
 public:
  StepProducts(const std::vector<StepProduct>& products, Stream& stream);
  StepProducts(const StepProducts&) = delete;
  StepProducts& operator=(const StepProducts&) = delete;

  const std::vector<Matmul>& kernels() const { return kernels_; }
  // Runs all, one after the other, and waits.
  void run();

 private:
  using Key = std::tuple<NodeId, bool, int64_t, int64_t, DType>;
  View memory(const Key& key);

  Stream& stream_;
  std::map<Key, Tensor> memory_;
  std::vector<Matmul> kernels_;
};

}  // namespace spool::benchmarks
