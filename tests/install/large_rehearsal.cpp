// A rehearsal of a transformer of 8 billion parameters on a machine that is not here: the peak of a
// step with everything kept, and with blocks recomputed and the optimizer's state on the host.

#include <iostream>
#include <string>

#include "spool/spool.h"

namespace {

using namespace spool;

constexpr int64_t B = 1, T = 2048, C = 4096, V = 128256, layers = 36;

class Large final : public StepModel {
 public:
  explicit Large(Stream& stream)
      : all_(stream, DType::bf16),
        tokens_({Shape{B, T}, DType::i32}, stream, {.name = "tokens", .purpose = Purpose::input}) {
    embedding_ = &all_.add("embedding", {V, C}, normal(0.02f));
    for (int64_t l = 0; l < layers; ++l) {
      const auto add = [&](const char* name, const Shape& shape) {
        return &all_.add(std::to_string(l) + name, shape,
                         shape.rank() == 1 ? ones() : normal(0.02f));
      };
      blocks_.push_back({add(".norm", {C}), add(".norm_bias", {C}), add(".qkv", {3 * C, C}),
                         add(".out", {C, C}), add(".up", {4 * C, C}), add(".down", {C, 4 * C})});
    }
  }
  Parameters& parameters() override { return all_; }
  Var loss(Tape& tape) override {
    Var x = embedding(tape.input(tokens_), *embedding_);
    for (const Block& b : blocks_) {
      const Tape::Scope scope(tape, {.name = "block"});
      const Var h = layer_norm(x, *b.norm, *b.norm_bias);
      x = add(x, linear(attention(linear(h, *b.qkv), {.query = 32, .key = 32}), *b.out));
      x = add(x, linear(gelu(linear(layer_norm(x, *b.norm, *b.norm_bias), *b.up)), *b.down));
    }
    return linear_cross_entropy(x, *embedding_, tape.input(tokens_));
  }

 private:
  struct Block {
    Parameter *norm, *norm_bias, *qkv, *out, *up, *down;
  };
  Parameters all_;
  Parameter* embedding_ = nullptr;
  std::vector<Block> blocks_;
  Tensor tokens_;
};

}  // namespace

int main() {
  const StepDescription step{.make_model = make<Large>, .config = {.dtype = DType::bf16}};
  const Machine h200 = *named_machine("h200");
  const PlannedSteps kept = plan_steps(step, {.policy = Policy{}}, h200);
  const Policy small{.block = true, .optimizer_state = OptimizerState::streamed, .loss_chunk = 512};
  const PlannedSteps streamed = plan_steps(step, {.policy = small}, h200);
  MetaStream stream(h200);
  const int64_t parameters = Large(stream).parameters().numel();
  const size_t peak = kept.foretold.memory.peak, less = streamed.foretold.memory.peak;
  std::cout << parameters << " parameters: " << peak << " bytes, or " << less << " with "
            << streamed.foretold.host.peak << " on the host\n";
  // 16 bytes a parameter in all; on the device, the weights and gradients are left of them.
  const auto bytes_each = static_cast<size_t>(parameters);
  return parameters > 7'700'000'000 && peak > 16 * bytes_each && less < 6 * bytes_each ? 0 : 1;
}
