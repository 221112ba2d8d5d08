#include "tests/models/steps/transformer_testing.h"

#include <algorithm>

#include "spool/autograd/ops.h"
#include "spool/kernels/elementwise.h"
#include "spool/models/formats/parameter_file.h"
#include "spool/models/steps/step_executor.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

constexpr int threads = 2;

}  // namespace

Transformer::Transformer(const TransformerSizes& sizes, Stream& stream)
    : sizes_(sizes), parameters_(stream, sizes.dtype) {
  const int64_t C = sizes.channels;
  std::string prefix;
  const auto add = [&](const char* name, const Shape& shape) {
    return &parameters_.add(prefix + name, shape);
  };
  embedding_ = add("embedding.weight", {sizes.vocabulary, C});
  positions_ = add("positions.weight", {sizes.tokens, C});
  for (int64_t l = 0; l < sizes.layers; ++l) {
    prefix = std::to_string(l) + ".";
    layers_.push_back({.norm_1 = add("norm_1.weight", {C}),
                       .norm_bias_1 = add("norm_1.bias", {C}),
                       .attention = add("attention.weight", {3 * C, C}),
                       .projection = add("projection.weight", {C, C}),
                       .norm_2 = add("norm_2.weight", {C}),
                       .norm_bias_2 = add("norm_2.bias", {C}),
                       .up = add("up.weight", {4 * C, C}),
                       .down = add("down.weight", {C, 4 * C})});
  }
  prefix.clear();
  last_norm_ = add("last_norm.weight", {C});
  last_norm_bias_ = add("last_norm.bias", {C});
  const Spec ids{Shape{sizes.batch, sizes.tokens}, DType::i32};
  tokens_ = Tensor(ids, stream, {.name = "tokens", .purpose = Purpose::input});
  targets_ = Tensor(ids, stream, {.name = "targets", .purpose = Purpose::input});
}

Var Transformer::layer(Var x, const Layer& l) const {
  const Tape::Scope scope(x.tape(), {.name = "block"});
  Var h = layer_norm(x, *l.norm_1, *l.norm_bias_1);
  h = linear(h, *l.attention);
  h = attention(h, {.query = sizes_.heads, .key = sizes_.heads});
  h = linear(h, *l.projection);
  h = dropout(h, sizes_.dropout);
  x = add(x, h);
  h = layer_norm(x, *l.norm_2, *l.norm_bias_2);
  h = linear(h, *l.up);
  h = gelu(h);
  h = linear(h, *l.down);
  h = dropout(h, sizes_.dropout);
  return add(x, h);
}

Var Transformer::loss(Tape& tape) {
  Var x = embedding(tape.input(tokens_), *embedding_, *positions_);
  x = dropout(x, sizes_.dropout);
  for (const Layer& l : layers_) x = layer(std::move(x), l);
  x = layer_norm(x, *last_norm_, *last_norm_bias_);
  return linear_cross_entropy(x, *embedding_, tape.input(targets_));
}

void Transformer::upload(int64_t micro) {
  Random random(static_cast<uint64_t>(micro) + 1);
  for (const Tensor* ids : {&tokens_, &targets_}) {
    std::vector<int32_t> drawn(static_cast<size_t>(sizes_.batch * sizes_.tokens));
    for (int32_t& id : drawn) id = static_cast<int32_t>(random.next() % sizes_.vocabulary);
    write<int32_t>(*ids, drawn);
  }
}

void Transformer::initialise(uint64_t seed) {
  for (const Parameter* p : parameters_) {
    Random random(++seed);
    const Shape& shape = p->whole().shape;
    const bool is_norm = shape.rank() == 1 && std::string_view(p->name).ends_with('t');
    std::vector<float> numbers(static_cast<size_t>(shape.numel()));
    for (float& x : numbers) x = (is_norm ? 1.0f : 0.0f) + 0.1f * random.normal();
    const std::vector<bf16> rounded(numbers.begin(), numbers.end());
    const auto bytes = sizes_.dtype == DType::bf16 ? std::as_bytes(std::span(rounded))
                                                   : std::as_bytes(std::span(numbers));
    write_whole(*p, bytes);
  }
}

StepDescription describe(const TransformerSizes& sizes, const StepConfig& config) {
  return {.make_model =
              [sizes](Stream& stream) { return std::make_unique<Transformer>(sizes, stream); },
          .config = config};
}

TransformerRun run_transformer(const TransformerSizes& sizes, const StepConfig& config,
                               const StepPlans& plans, size_t capacity) {
  CpuStream stream(capacity, threads);
  TransformerRun run;
  {
    Transformer model(sizes, stream);
    StepExecutor runner(model, config, plans, stream);
    model.initialise();
    runner.optimizer().initialise();
    const int64_t targets = config.accumulate * sizes.batch * sizes.tokens;
    for (int64_t number = 0; number < 3; ++number) {
      runner.run({.number = number, .learning_rate = 0.01, .targets = targets},
                 [&](int64_t micro) { model.upload(3 * number + micro); });
      const StepResult result = runner.result();
      EXPECT_TRUE(result.finite);
      run.numbers.insert(run.numbers.end(), {result.loss, result.grad_norm});
    }
  }
  run.peak = stream.memory().peak;
  return run;
}

Machine cpu_machine() { return {.architecture = this_processor(threads), .f32_flops = 450e9}; }

}  // namespace spool::testing
