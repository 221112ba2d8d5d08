// Hooks that store saved f32 values as bf16, in half the memory.  The net's code does not change.
// The gradients are rounded, so the program prints their error along with the memory saved.  Hooks
// that only launch kernels can be rehearsed, so the peak is foretold with them as without.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"

namespace research {

using namespace spool;

// A saved f32 tensor as bf16; unpack() converts it back.
class Narrow final : public SavedTensor {
 public:
  explicit Narrow(const Tensor& wide)
      : narrow_({wide.shape(), DType::bf16}, wide.stream(), {.name = "narrow"}) {
    launch(Cast{.out = narrow_, .in = wide}, wide.stream());
  }
  Tensor unpack() override {
    const Tensor wide({narrow_.shape(), DType::f32}, narrow_.stream(), {.name = "wide"});
    launch(Cast{.out = wide, .in = narrow_}, narrow_.stream());
    return wide;
  }

 private:
  Tensor narrow_;
};

// The tape calls pack() for each value that it saves for backward.
struct NarrowHooks final : SavedTensorHooks {
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo&) override {
    // Small tensors (row means, log-sum-exps) are not worth two launches.
    constexpr int64_t min_elements = 4096;
    if (t.dtype() != DType::f32 || t.numel() < min_elements) return keep(t);
    return std::make_unique<Narrow>(t);
  }
};

constexpr int64_t N = 512, C = 64;
constexpr size_t layers = 6;

Tensor normal(const Shape& shape, float deviation, Random& random, Stream& stream) {
  std::vector<float> all(static_cast<size_t>(shape.numel()));
  for (float& v : all) v = deviation * random.normal();
  return make_tensor<float>(shape, all, stream);
}

struct Net {
  std::vector<Parameter> weights;
  Tensor x, dy;  // (N, C), (N, C)

  explicit Net(Stream& stream) {
    Random random(1);
    for (size_t i = 0; i < layers; ++i) {
      weights.push_back({.name = "weight", .data = normal({C, C}, 0.15f, random, stream)});
    }
    x = normal({N, C}, 1.0f, random, stream);
    dy = normal({N, C}, 1.0f, random, stream);
  }
  Var output(Tape& tape) {
    Var h = tape.input(x);
    for (Parameter& w : weights) h = gelu(linear(h, w));
    return h;
  }
};

struct Outcome {
  std::vector<std::vector<float>> gradients;
  size_t saved = 0;  // bytes that are live between forward and backward
  size_t peak = 0;   // bytes
};

// One step of a new net, with hooks or, if null, without.
Outcome step(Stream& stream, SavedTensorHooks* hooks) {
  Net net(stream);
  Outcome outcome;
  const size_t before = stream.memory().live;
  Tape tape(stream);
  Root root{.y = {}, .dy = net.dy};
  {
    // Values saved within the scope go through the hooks; backward may run outside it.
    std::optional<Tape::HooksScope> scope;
    if (hooks) scope.emplace(tape, *hooks);
    root.y = net.output(tape);
  }
  outcome.saved = stream.memory().live - before;
  tape.backward({root});
  outcome.peak = stream.memory().peak;
  if (stream.device().type == DeviceType::meta) return outcome;
  for (const Parameter& w : net.weights) outcome.gradients.push_back(read<float>(w.grad));
  return outcome;
}

// One step in exactly the bytes that a rehearsal foretells.
Outcome run(SavedTensorHooks* hooks) {
  constexpr int threads = 2;
  const Machine machine{.architecture = CpuArchitecture{.threads = threads}};
  const Report foretold = rehearse(machine, [&](MetaStream& stream) { step(stream, hooks); });
  CpuStream stream(foretold.memory.peak, threads);
  return step(stream, hooks);
}

// The largest error of a gradient, relative to that gradient's largest element.
double max_error(const Outcome& a, const Outcome& b) {
  double worst = 0;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    double largest = 0, error = 0;
    for (size_t k = 0; k < a.gradients[i].size(); ++k) {
      const double exact = a.gradients[i][k], found = b.gradients[i][k];
      largest = std::max(largest, std::abs(exact));
      error = std::max(error, std::abs(exact - found));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

}  // namespace research

int main() {
  using namespace research;
  NarrowHooks hooks;
  const Outcome plain = run(nullptr), narrow = run(&hooks);
  const double error = max_error(plain, narrow);
  std::printf("bytes between forward and backward: %zu, narrow %zu\n", plain.saved, narrow.saved);
  std::printf("peak: %zu, narrow %zu\n", plain.peak, narrow.peak);
  std::printf("gradients differ by %.2e of the largest\n", error);

  // Each layer saves two values; the first one, x, is the caller's and was live before.  The net's
  // output is live in either case.
  const size_t value = N * C * sizeof(float), packed = (2 * layers - 1) * value;
  const bool halved = plain.saved == packed + value && narrow.saved == packed / 2 + value;
  const bool lower = narrow.peak < plain.peak;
  const bool close = error > 0 && error < 1e-2;  // bf16 has 8 bits
  if (!halved) std::printf("WRONG: the saved values do not take half the bytes\n");
  if (!lower) std::printf("WRONG: the peak is not lower\n");
  if (!close) std::printf("WRONG: the gradients differ by nothing, or by too much\n");
  return halved && lower && close ? 0 : 1;
}
