// The peak memory of a generator against its rehearsal.

#include <optional>

#include "spool/models/families/gpt2.h"
#include "spool/models/inference/generator.h"
#include "spool/planner/rehearsal.h"
#include "spool/runtime/cpu/bf16_products.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/models/inference/generator_testing.h"

namespace spool::testing {
namespace {

struct Length {
  int64_t prompt, count;
};

// The peak of extending a prompt, in an arena of `budget` bytes.
size_t peak_of(const Gpt2Config& config, DType type, const Length& length, size_t budget) {
  CpuStream stream(budget, 2);
  Gpt2 model(config, type, stream);
  model.initialise(1);
  Random random(1);
  std::vector<int32_t> text = some_text(length.prompt);
  Generator(model, stream).extend(text, length.count, {}, random);
  EXPECT_EQ(static_cast<int64_t>(text.size()), length.prompt + length.count);
  return stream.memory().peak;
}

size_t foretold(const Gpt2Config& config, DType type, const std::optional<Length>& length) {
  const Machine machine{.architecture = this_processor(2)};
  return rehearse(machine,
                  [&](MetaStream& stream) {
                    Gpt2 model(config, type, stream);
                    Generator generator(model, stream);
                    if (length) return generator.rehearse(length->prompt, length->count);
                    generator.rehearse();
                  })
      .memory.peak;
}

TEST(GeneratorPeak, IsForetoldToTheByteAndSufficesAsBudget) {
  Gpt2Config odd = short_context, many_words = long_context;
  odd.context = 7;
  many_words.vocabulary = 9000;
  for (const Gpt2Config& config : {short_context, odd, long_context, many_words}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const size_t any = foretold(config, type, {});
      for (const Length& length : {Length{1, 1},
                                   {1, 5},
                                   {1, 40},
                                   {5, 3},
                                   {31, 2},
                                   {130, 4},
                                   {300, 1},
                                   {300, 2},
                                   {299, 3},
                                   {777, 1}}) {
        SCOPED_TRACE(sentence(name(type), ", ", length.prompt, " and ", length.count,
                              " tokens, a context of ", config.context));
        const size_t exactly = foretold(config, type, length);
        EXPECT_LE(exactly, any);
        EXPECT_EQ(peak_of(config, type, length, exactly), exactly);
        expect_error(ErrorKind::memory, {" the arena needs "},
                     [&] { peak_of(config, type, length, exactly - Arena::granule); });
      }
      // A prompt of as many tokens as are read at once.
      const int64_t at_once = config.context >= 128 ? 128 : config.context >= 16 ? 16 : 4;
      EXPECT_EQ(peak_of(config, type, {at_once, 1}, any), any);
    }
  }
}

}  // namespace
}  // namespace spool::testing
