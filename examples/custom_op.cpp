// A new op, from its formula to training.  The program defines the squared ReLU by map(), checks
// it, and defines a small model that uses it; it rehearses a training step to learn its peak
// memory, and then trains in exactly that many bytes.  It needs only Spool's public headers and
// library.

#include <cstdio>
#include <string>
#include <vector>

#include "spool/runtime/cpu/bf16_products.h"
#include "spool/spool.h"
#include "spool/testing.h"

namespace research {

using namespace spool;

// The squared ReLU, max(x, 0)^2 (So et al. 2021): its value and its derivative, for one element.
// map() makes an op of it, which saves x for backward, as its derivative reads it.  In a CUDA
// source the same lines are an op for the cpu and for GPUs.
struct SquaredRelu {
  static constexpr const char* name = "squared_relu";
  SPOOL_HOST_DEVICE auto value(auto x) const { return x > 0 ? x * x : 0; }
  SPOOL_HOST_DEVICE auto derivative(auto x) const { return x > 0 ? 2 * x : 0; }
};

Var squared_relu(const Operand& x) { return map(SquaredRelu(), x); }

// What is wrong with the op, in sentences: its gradient, memory, notation and more.
std::vector<std::string> check_squared_relu() {
  return check_op(
      {.name = "squared_relu",
       .inputs = {{.shape = {3, 4, 5}, .large = {400, 100}}},
       .apply = [](const std::vector<Operand>& x) { return std::vector{squared_relu(x[0])}; }});
}

constexpr int64_t N = 256, C = 32, classes = 4;

// Two layers that learn which quarter of a row has the largest mean.
struct Net {
  Parameter up{.name = "up"}, down{.name = "down"};  // (4C, C), (classes, 4C)
  Tensor x, targets;                                 // (N, C), i32 (N)

  explicit Net(Stream& stream) : x({Shape{N, C}}, stream), targets({Shape{N}, DType::i32}, stream) {
    Random random(1);
    for (Parameter* p : {&up, &down}) {
      const Shape shape = p == &up ? Shape{4 * C, C} : Shape{classes, 4 * C};
      std::vector<float> values(static_cast<size_t>(shape.numel()));
      for (float& v : values) v = 0.1f * random.normal();
      p->data = make_tensor<float>(shape, values, stream, {.name = p->name});
    }
    std::vector<float> inputs;
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < N; ++n) {
      const auto largest = static_cast<int32_t>(random.next() % classes);
      for (int64_t c = 0; c < C; ++c) {
        inputs.push_back(random.normal() + (c / (C / classes) == largest ? 0.3f : 0.0f));
      }
      labels.push_back(largest);
    }
    write<float>(x, inputs);
    write<int32_t>(targets, labels);
  }

  Var loss(Tape& tape) {
    const Var h = squared_relu(linear(tape.input(x), up));
    return linear_cross_entropy(h, down, tape.input(targets));
  }
};

// All the work on the device.  main() rehearses it on a MetaStream, then runs it on a CpuStream.
void train(Stream& stream, int steps, bool report) {
  Net net(stream);
  AdamWOptimizer optimizer({&net.up, &net.down}, {}, stream);
  for (int step = 1; step <= steps; ++step) {
    Tape tape(stream, {.backward_follows = true});
    const Var loss = net.loss(tape);
    tape.backward(loss);
    optimizer.step(/*learning_rate=*/1e-2);
    if (report && step % 10 == 0) {
      std::printf("step %d: loss %.4f\n", step, static_cast<double>(read<float>(loss.tensor())[0]));
    }
  }
}

}  // namespace research

int main() {
  using namespace research;
  const std::vector<std::string> failures = check_squared_relu();
  for (const std::string& failure : failures) std::printf("%s\n", failure.c_str());
  if (!failures.empty()) return 1;
  constexpr int threads = 2;
  const Machine machine{.architecture = this_processor(threads)};
  const Report foretold =
      rehearse(machine, [](MetaStream& stream) { train(stream, /*steps=*/1, /*report=*/false); });
  std::printf("foretold peak: %zu bytes\n%s", foretold.memory.peak,
              in_words(foretold, /*max=*/5).c_str());
  CpuStream stream(foretold.memory.peak, threads);
  train(stream, /*steps=*/50, /*report=*/true);
  std::printf("reached peak:  %zu bytes\n", stream.memory().peak);
  return stream.memory().peak == foretold.memory.peak ? 0 : 1;
}
