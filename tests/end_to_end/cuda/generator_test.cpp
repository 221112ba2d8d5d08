// The logits of texts that are written on cuda beside those of the cpu, token by token.

#include <algorithm>

#include "spool/models/families/gpt2_config.h"
#include "spool/models/families/llama_config.h"
#include "spool/models/inference/generator.h"
#include "tests/kernels/cuda_testing.h"

namespace spool::testing {
namespace {

class CudaGenerator : public OnCuda {};

std::vector<ModelConfig> writers() {
  return {Gpt2Config{.layers = 2, .heads = 2, .channels = 24, .context = 24, .vocabulary = 50},
          LlamaConfig{.layers = 2,
                      .channels = 24,
                      .inner = 40,
                      .context = 24,
                      .vocabulary = 50,
                      .heads = {.query = 4, .key = 2},
                      .head = 8,
                      .qkv_bias = true}};
}

// A generator whose model has the same weights on any device, large enough for logits that differ.
struct Writer {
  Writer(const ModelConfig& config, DType type, Stream& stream)
      : model(config.make(type, stream)), generator(*model, stream) {
    uint64_t seed = 1;
    for (Parameter* p : model->parameters()) {
      p->data = normal(p->data.shape(), type, stream, seed++, 0.3);
    }
    model->clear_padding();
  }

  Numbers logits(std::span<const int32_t> tokens) {
    generator.read(tokens);
    Numbers all = values(generator.logits());
    all.resize(static_cast<size_t>(model->shape().vocabulary));
    return all;
  }

  std::shared_ptr<Model> model;
  Generator generator;
};

// The cpu chooses each token, and both read it: where two are about as probable the device might
// take the other, and the texts would have nothing more to compare.
TEST_F(CudaGenerator, HasTheLogitsOfTheCpuAlongATextThatTheCpuWrites) {
  constexpr int written = 40;  // beyond the context, so that the cache is read again
  for (const ModelConfig& config : writers()) {
    for (const DType type : cuda_types) {
      CpuStream cpu(on_both, 1);
      const auto cuda = cuda_stream();
      Writer on_cpu(config, type, cpu), on_cuda(config, type, *cuda);
      std::vector<int32_t> tokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2};
      for (int i = 0; i < written; ++i) {
        const Numbers wanted = on_cpu.logits(tokens), found = on_cuda.logits(tokens);
        ASSERT_LT(difference(found, wanted), type == DType::f32 ? 1e-5 : 3e-2)
            << name(type) << ", token " << i;
        tokens = {static_cast<int32_t>(std::ranges::max_element(wanted) - wanted.begin())};
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
