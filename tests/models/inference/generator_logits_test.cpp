// The logits of a generator, which has a key-value cache, against whole forward passes.

#include "spool/models/families/gpt2.h"
#include "spool/models/inference/generator.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/inference/generator_testing.h"

namespace spool::testing {
namespace {

TEST(GeneratorLogits, AreThoseOfAWholePass) {
  CpuStream stream(generator_budget, 2);
  for (const DType type : floating) {
    for (Gpt2Config config : {short_context, long_context}) {
      for (const int64_t context : {config.context, config.context - 3}) {
        config.context = context;
        Gpt2 model(config, type, stream);
        initialise_with_large_weights(model);
        Generator generator(model, stream);
        for (const int64_t n : {1, 2, 23, 24, 25, 36, 37, 100, 290, 300, 301, 451, 1000}) {
          const std::vector<int32_t> text = some_text(n);
          generator.begin();
          generator.read(text);
          EXPECT_LE(difference(values(generator.logits()), whole_logits(model, text, stream)),
                    type == DType::f64 ? 1e-6 : forward_tolerance(type))
              << name(type) << ", " << n << " tokens, a context of " << context;
        }
      }
    }
  }
}

}  // namespace
}  // namespace spool::testing
