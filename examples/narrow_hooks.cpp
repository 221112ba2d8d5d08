// Hooks that put saved f32 values away as bf16, in half the memory, on a net that knows nothing of
// them.  Gradients are no longer those of the net to the last bit: how far off they are is printed,
// beside what it saved.  The peak is foretold with hooks as without, since they only launch
// kernels.

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

struct NarrowHooks final : SavedTensorHooks {
  std::unique_ptr<SavedTensor> pack(const Tensor& t, const SavedInfo&) override {
    // What is small is not worth two launches: a row's mean, a log-sum-exp.
    constexpr int64_t least = 4096;
    if (t.dtype() != DType::f32 || t.numel() < least) return keep(t);
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
  size_t between = 0, peak = 0;  // bytes that wait between forward and backward; the most there are
};

// One step, with its own parameters.
Outcome step(Stream& stream, SavedTensorHooks* hooks) {
  Net net(stream);
  Outcome outcome;
  const size_t before = stream.memory().live;
  Tape tape(stream);
  Root root{.y = {}, .dy = net.dy};
  {
    // What is saved in forward goes through the hooks; backward runs outside their scope.
    std::optional<Tape::HooksScope> scope;
    if (hooks) scope.emplace(tape, *hooks);
    root.y = net.output(tape);
  }
  outcome.between = stream.memory().live - before;
  tape.backward({root});
  outcome.peak = stream.memory().peak;
  if (stream.device().type == DeviceType::meta) return outcome;
  for (const Parameter& w : net.weights) outcome.gradients.push_back(read<float>(w.grad));
  return outcome;
}

// In just the bytes that a rehearsal foretells.
Outcome run(SavedTensorHooks* hooks) {
  constexpr int threads = 2;
  const Machine machine{.architecture = CpuArchitecture{.threads = threads}};
  const Report foretold = rehearse(machine, [&](MetaStream& stream) { step(stream, hooks); });
  CpuStream stream(foretold.memory.peak, threads);
  return step(stream, hooks);
}

// The largest difference of a gradient, relative to that gradient's largest element.
double difference(const Outcome& a, const Outcome& b) {
  double worst = 0;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    double largest = 0, apart = 0;
    for (size_t k = 0; k < a.gradients[i].size(); ++k) {
      const double exact = a.gradients[i][k], found = b.gradients[i][k];
      largest = std::max(largest, std::abs(exact));
      apart = std::max(apart, std::abs(exact - found));
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

}  // namespace research

int main() {
  using namespace research;
  NarrowHooks hooks;
  const Outcome plain = run(nullptr), narrow = run(&hooks);
  const double apart = difference(plain, narrow);
  std::printf("bytes between forward and backward: %zu, narrow %zu\n", plain.between,
              narrow.between);
  std::printf("peak: %zu, narrow %zu\n", plain.peak, narrow.peak);
  std::printf("gradients differ by %.2e of the largest\n", apart);

  // Each layer saves two values, and x is the caller's and stays.  The net's output is one value
  // that is held in either case.
  const size_t value = N * C * sizeof(float), saved = (2 * layers - 1) * value;
  const bool saves = plain.between == saved + value && narrow.between == saved / 2 + value;
  const bool lowers = narrow.peak < plain.peak;
  const bool close = apart > 0 && apart < 1e-2;  // bf16 has 8 bits
  if (!saves) std::printf("it does not save what it should\n");
  if (!lowers) std::printf("the peak is not lower\n");
  if (!close) std::printf("gradients are off\n");
  return saves && lowers && close ? 0 : 1;
}
