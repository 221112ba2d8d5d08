// Hooks that store saved f32 values in fewer bits: as bf16, in half the memory, or as rows of 8
// bits with a scale each, in about a quarter.  The net's code does not change.  The gradients are
// rounded, so the program prints their error along with the memory saved.  Hooks that only launch
// kernels can be rehearsed, so the peak is foretold with them as without.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/kernels/quantize.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/random.h"

namespace research {

using namespace spool;

// Small tensors (row means, log-sum-exps) are not worth two launches.
bool is_worth_it(const Tensor& t) { return t.dtype() == DType::f32 && t.numel() >= 4096; }

// The first function packs a value that the tape saves for backward, the second unpacks it.
auto narrow_hooks() {
  return hooks_from(
      [](const Tensor& wide, const SavedInfo&) -> std::optional<Tensor> {
        if (!is_worth_it(wide)) return {};  // kept as it is
        const Tensor narrow({wide.shape(), DType::bf16}, wide.stream(), {.name = "narrow"});
        launch(Cast{.out = narrow, .in = wide}, wide.stream());
        return narrow;
      },
      [](const Tensor& narrow) {
        const Tensor wide({narrow.shape(), DType::f32}, narrow.stream(), {.name = "wide"});
        launch(Cast{.out = wide, .in = narrow}, narrow.stream());
        return wide;
      });
}

struct Rows {
  Tensor q, scale;  // (N.., C), i8; (N..), f32
};

auto eight_bit_hooks() {
  return hooks_from(
      [](const Tensor& x, const SavedInfo&) -> std::optional<Rows> {
        if (!is_worth_it(x)) return {};
        const Rows rows{.q = Tensor({x.shape(), DType::i8}, x.stream(), {.name = "rows"}),
                        .scale = Tensor({Shape{x.shape().rows()}}, x.stream(), {.name = "scale"})};
        launch(Quantize{.q = rows.q, .scale = rows.scale, .x = x}, x.stream());
        return rows;
      },
      [](const Rows& rows) {
        const Tensor x({rows.q.shape(), DType::f32}, rows.q.stream(), {.name = "from 8 bits"});
        launch(Dequantize{.x = x, .q = rows.q, .scale = rows.scale}, rows.q.stream());
        return x;
      });
}

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
  bool as_foretold = false;
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
  const Machine machine{.architecture = this_processor(threads)};
  const Report foretold = rehearse(machine, [&](MetaStream& stream) { step(stream, hooks); });
  CpuStream stream(foretold.memory.peak, threads);
  Outcome outcome = step(stream, hooks);
  outcome.as_foretold = outcome.peak == foretold.memory.peak;
  return outcome;
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

// Prints what the hooks save and cost, and whether that is as expected: bytes of a packed value,
// and the largest error.
bool compare(const char* name, const Outcome& plain, const Outcome& packed, size_t value_bytes,
             double max_expected) {
  const double error = max_error(plain, packed);
  std::printf(
      "%s: between forward and backward %zu bytes instead of %zu, peak %zu instead of %zu, "
      "gradients differ by %.2e of the largest\n",
      name, packed.saved, plain.saved, packed.peak, plain.peak, error);
  // Each layer saves two values; the first one, x, is the caller's and was live before.  The net's
  // output is live in either case.
  const size_t value = N * C * sizeof(float), values = 2 * layers - 1;
  const bool fewer = plain.saved == values * value + value &&
                     packed.saved == values * value_bytes + value && packed.peak < plain.peak;
  const bool close = error > 0 && error < max_expected;
  if (!fewer) std::printf("WRONG: the saved values do not take the bytes that they should\n");
  if (!packed.as_foretold) std::printf("WRONG: the peak is not the foretold one\n");
  if (!close) std::printf("WRONG: the gradients differ by nothing, or by too much\n");
  return fewer && packed.as_foretold && close;
}

}  // namespace research

int main() {
  using namespace research;
  auto narrow = narrow_hooks();
  auto eight_bit = eight_bit_hooks();
  const Outcome plain = run(nullptr);
  const size_t elements = N * C;
  bool good = compare("bf16", plain, run(&narrow), 2 * elements, /*max_expected=*/1e-2);
  good &= compare("8 bits", plain, run(&eight_bit), elements + N * sizeof(float),
                  /*max_expected=*/2e-2);
  return good ? 0 : 1;
}
