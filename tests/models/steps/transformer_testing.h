#pragma once

// A GPT-2-like transformer of any size, as a step's model.

#include <memory>
#include <vector>

#include "spool/autograd/step_model.h"
#include "spool/models/steps/step_rehearsal.h"

namespace spool::testing {

struct TransformerSizes {
  int64_t layers = 2, channels = 32, heads = 2, vocabulary = 96;
  int64_t batch = 2, tokens = 16;
  DType dtype = DType::f32;
  float dropout = 0;
};
inline constexpr TransformerSizes sizes_of_124m = {
    .layers = 12, .channels = 768, .heads = 12, .vocabulary = 50304, .batch = 4, .tokens = 256};
// 32 rows of 1024 tokens, in bf16.
inline constexpr TransformerSizes large_batch_of_124m = {.layers = 12,
                                                         .channels = 768,
                                                         .heads = 12,
                                                         .vocabulary = 50304,
                                                         .batch = 32,
                                                         .tokens = 1024,
                                                         .dtype = DType::bf16};

class Transformer final : public StepModel {
 public:
  Transformer(const TransformerSizes&, Stream&);

  Parameters& parameters() override { return parameters_; }
  Var loss(Tape&) override;
  void upload_placeholder() override { upload(0); }
  void upload(int64_t micro);
  // Small random numbers; the same each time.
  void initialise(uint64_t seed = 100) override;

 private:
  struct Layer {
    Parameter *norm_1, *norm_bias_1, *attention, *projection, *norm_2, *norm_bias_2, *up, *down;
  };
  Var layer(Var x, const Layer&) const;

  TransformerSizes sizes_;
  Parameters parameters_;
  std::vector<Layer> layers_;
  Parameter *embedding_, *positions_, *last_norm_, *last_norm_bias_;
  Tensor tokens_, targets_;
};

StepDescription describe(const TransformerSizes&, const StepConfig& = {});

// The results of some steps of a transformer on the cpu, and their peak memory.
struct TransformerRun {
  std::vector<float> numbers = {};  // losses and norms of gradients
  size_t peak = 0;
};
TransformerRun run_transformer(const TransformerSizes&, const StepConfig&, const StepPlans&,
                               size_t capacity);

// A machine on which kernels need as much memory as on this cpu.
Machine cpu_machine();

}  // namespace spool::testing
