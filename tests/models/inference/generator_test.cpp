// Generation with a key-value cache against whole forward passes without one.

#include "spool/models/inference/generator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "spool/planner/rehearsal.h"
#include "tests/kernels/kernel_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;

// Of a context that is full soon.
constexpr Gpt2Config small{.layers = 2,
                           .heads = 2,
                           .channels = 24,
                           .context = 24,
                           .vocabulary = 50,
                           .epsilon = 0.1,
                           .gelu = GeluForm::exact};
// Of one that takes tokens by as many as there may be at once, and attention in several tiles.
constexpr Gpt2Config long_one{
    .layers = 2, .heads = 3, .channels = 48, .context = 300, .vocabulary = 70};

// With weights large enough for logits that differ.
void initialise(Gpt2& model) {
  model.initialise(5);
  uint64_t seed = 1;
  for (Parameter* p : model.parameters()) {
    const Tensor larger = normal(p->data.shape(), model.dtype(), p->data.stream(), seed++, 0.3);
    launch(Add{.out = add_to(p->data), .a = larger}, p->data.stream());
  }
  model.clear_padding();
}

std::vector<int32_t> some_text(int64_t count, uint64_t seed = 1) {
  Random random(seed);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<int32_t>(random.next() % 50));
  return all;
}

double bound(DType t) { return t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 3e-2; }

Tensor whole_hidden(Gpt2& model, const Tensor& tokens) {
  Tape tape(tokens.stream(), {.recording = false, .training = false});
  return model.hidden(tape.input(tokens)).tensor();
}

// Rows [begin, end) of each of B texts.
template <class T>
std::vector<T> cut(const std::vector<T>& all, int64_t B, int64_t row, Range part) {
  std::vector<T> some;
  const int64_t length = static_cast<int64_t>(all.size()) / B;
  for (int64_t b = 0; b < B; ++b) {
    const auto first = all.begin() + b * length;
    some.insert(some.end(), first + part.begin * row, first + part.end * row);
  }
  return some;
}

void expect_hidden_of_the_whole(Gpt2& model, int64_t B, int64_t piece, Stream& stream) {
  const int64_t T = model.config().context, C = model.config().channels;
  const std::vector<int32_t> text = some_text(B * T);
  const Numbers expected = values(whole_hidden(model, integers({B, T}, text, stream)));
  KeyValueCache cache = model.make_cache(B);
  while (cache.length() < T) {
    const Range rows{cache.length(), std::min(cache.length() + piece, T)};
    Tape tape(stream, {.recording = false, .training = false});
    const Tensor tokens = integers({B, rows.size()}, cut(text, B, 1, rows), stream);
    const Tensor hidden = model.hidden(tape.input(tokens), cache).tensor();
    EXPECT_LE(difference(values(hidden), cut(expected, B, C, rows)), bound(model.dtype()))
        << name(model.dtype()) << ", " << rows.begin << " to " << rows.end;
  }
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor more = integers({B, 1}, some_text(B), stream);
  EXPECT_NE(error_of([&] { model.hidden(tape.input(more), cache); }), "");
}

TEST(KeyValueCache, HasEveryPositionAsTheWholePassHasIt) {
  CpuStream stream(plenty, 2);
  for (const DType type : floating) {
    Gpt2 model(small, type, stream), larger(long_one, type, stream);
    initialise(model);
    initialise(larger);
    for (const int64_t piece : {1, 2, 5, 13, 24}) {
      expect_hidden_of_the_whole(model, /*B=*/2, piece, stream);
    }
    for (const int64_t piece : {7, 100, 128}) {
      expect_hidden_of_the_whole(larger, /*B=*/1, piece, stream);
    }
  }
}

TEST(KeyValueCache, RefusesWhatItHasNoRoomFor) {
  CpuStream stream(plenty, 1);
  KeyValueCache cache(2, {1, 1, 8, 4}, DType::f32, stream);
  cache.advance(5);
  EXPECT_NE(error_of([&] { cache.advance(4); }).find("4 tokens after 5"), std::string::npos);
  EXPECT_NE(error_of([&] { cache.layer(2); }).find("layer 2 of 2"), std::string::npos);
  cache.clear();
  EXPECT_EQ(cache.layer(1).position, 0);
  EXPECT_NE(error_of([&] { KeyValueCache(0, {1, 1, 8, 4}, DType::f32, stream); }), "");
  EXPECT_NE(error_of([&] { KeyValueCache(2, {8, 4}, DType::f32, stream); }), "");
}

TEST(KeyValueCache, IsForATapeThatDoesNotRecord) {
  CpuStream stream(plenty, 1);
  Gpt2 model(small, DType::f32, stream);
  initialise(model);
  KeyValueCache cache = model.make_cache();
  Tape tape(stream);
  const Var tokens = tape.input(integers({1, 3}, some_text(3), stream));
  EXPECT_NE(error_of([&] { model.hidden(tokens, cache); }).find("does not record"),
            std::string::npos);
  EXPECT_EQ(cache.length(), 0);
}

// What is kept of a text of so many tokens, as it comes about one after the other.
int64_t kept(int64_t tokens, int64_t context) {
  int64_t length = 0;
  for (int64_t i = 0; i < tokens; ++i) length = (length == context ? context / 2 : length) + 1;
  return length;
}

Numbers whole_logits(Gpt2& model, const std::vector<int32_t>& text, Stream& stream) {
  const int64_t n = kept(static_cast<int64_t>(text.size()), model.config().context);
  const std::vector<int32_t> last(text.end() - n, text.end());
  const Tensor hidden = whole_hidden(model, integers({1, n}, last, stream));
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor row = hidden.reshape({n, model.config().channels}).slice({n - 1, n});
  return values(model.logits(tape.input(row)).tensor());
}

TEST(Generator, HasTheLogitsOfTheWholePass) {
  CpuStream stream(plenty, 2);
  for (const DType type : floating) {
    for (Gpt2Config config : {small, long_one}) {
      for (const int64_t context : {config.context, config.context - 3}) {
        config.context = context;
        Gpt2 model(config, type, stream);
        initialise(model);
        Generator generator(model, stream);
        for (const int64_t n : {1, 2, 23, 24, 25, 36, 37, 100, 290, 300, 301, 451, 1000}) {
          const std::vector<int32_t> text = some_text(n);
          generator.begin();
          generator.read(text);
          EXPECT_LE(difference(values(generator.logits()), whole_logits(model, text, stream)),
                    type == DType::f64 ? 1e-6 : bound(type))
              << name(type) << ", " << n << " tokens, a context of " << context;
        }
      }
    }
  }
}

TEST(Generator, DoesNotMindHowATextIsHandedOver) {
  CpuStream stream(plenty, 2);
  for (const DType type : {DType::f32, DType::bf16}) {
    Gpt2 model(small, type, stream);
    initialise(model);
    Generator generator(model, stream);
    const std::vector<int32_t> text = some_text(90);
    for (const size_t piece : {1, 3, 17, 31}) {
      generator.begin();
      for (size_t done = 0; done < text.size(); done += piece) {
        const auto some = std::span(text).subspan(done, std::min(piece, text.size() - done));
        generator.read(some);
        const std::vector<int32_t> so_far(text.begin(),
                                          text.begin() + static_cast<int64_t>(done + some.size()));
        const Numbers logits = values(generator.logits());
        EXPECT_LE(difference(logits, whole_logits(model, so_far, stream)), bound(type))
            << name(type) << ", " << so_far.size() << " tokens by " << piece;
        EXPECT_EQ(values(generator.logits()), logits);
      }
    }
  }
}

TEST(Generator, IsGreedyAsWholePassesAre) {
  CpuStream stream(plenty, 2);
  for (const Gpt2Config& config : {small, long_one}) {
    Gpt2 model(config, DType::f32, stream);
    initialise(model);
    std::vector<int32_t> expected = some_text(3), text = expected;
    for (int i = 0; i < 80; ++i) {
      Numbers logits = whole_logits(model, expected, stream);
      logits.resize(static_cast<size_t>(config.vocabulary));
      expected.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
    }
    Random random(1);
    Generator(model, stream).extend(text, 80, {.temperature = 0}, random);
    EXPECT_EQ(text, expected);
  }
}

TEST(Generator, HasTheSameBitsForAnyNumberOfThreads) {
  const Gpt2Config wide{
      .layers = 2, .heads = 3, .channels = 192, .context = 140, .vocabulary = 1100};
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto written = [&](int threads) {
      CpuStream stream(plenty, threads);
      Gpt2 model(wide, type, stream);
      initialise(model);
      Generator generator(model, stream);
      Random random(4);
      std::vector<int32_t> text = some_text(131);
      generator.extend(text, 40, {.temperature = 1}, random);
      return std::pair(text, values(generator.logits()));
    };
    const auto one = written(1);
    for (const int threads : {2, 3}) EXPECT_EQ(written(threads), one) << name(type);
  }
}

struct Length {
  int64_t prompt, count;
};

// What extending takes, in an arena of so many bytes.
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
  const Machine machine{.architecture = CpuArchitecture{.threads = 2}};
  return rehearse(machine,
                  [&](MetaStream& stream) {
                    Gpt2 model(config, type, stream);
                    Generator generator(model, stream);
                    if (length) return generator.rehearse(length->prompt, length->count);
                    generator.rehearse();
                  })
      .memory.peak;
}

TEST(Generator, PeaksAreForetoldToTheByteAndAreABudgetThatSuffices) {
  Gpt2Config odd = small, many_words = long_one;
  odd.context = 7;
  many_words.vocabulary = 9000;
  for (const Gpt2Config& config : {small, odd, long_one, many_words}) {
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
        EXPECT_NE(error_of([&] { peak_of(config, type, length, exactly - Arena::granule); }), "");
      }
      // A prompt of as many as go at once.
      const int64_t most = config.context >= 128 ? 128 : config.context >= 16 ? 16 : 4;
      EXPECT_EQ(peak_of(config, type, {most, 1}, any), any);
    }
  }
}

TEST(Generator, RunsAsManyTokensAsItMust) {
  CpuStream stream(plenty, 1);
  Gpt2 model(small, DType::f32, stream);
  initialise(model);
  Generator generator(model, stream);
  Random random(1);
  generator.read(some_text(4));
  uint64_t before = stream.launches();
  const auto since = [&] { return stream.launches() - std::exchange(before, stream.launches()); };
  generator.next({}, random);
  const uint64_t one_pass = since();
  EXPECT_GT(one_pass, 0u);
  generator.next({}, random);
  EXPECT_EQ(since(), one_pass);
  generator.read(some_text(1));
  EXPECT_EQ(since(), 0u);
  generator.logits();  // the token drawn and the one read, together
  EXPECT_EQ(since(), one_pass);
  generator.logits();
  EXPECT_EQ(since(), 0u);
}

TEST(Generator, ForgetsATextThatIsOver) {
  CpuStream stream(plenty, 2);
  Gpt2 model(small, DType::f32, stream);
  initialise(model);
  Generator used(model, stream), fresh(model, stream);
  used.read(some_text(50, 2));
  used.logits();
  used.begin();
  for (Generator* g : {&used, &fresh}) g->read(some_text(10));
  EXPECT_EQ(values(used.logits()), values(fresh.logits()));
  used.rehearse();
  used.read(some_text(10));
  EXPECT_EQ(values(used.logits()), values(fresh.logits()));
}

TEST(Generator, StopsAtTheEndOfTextOrWhereItIsTold) {
  CpuStream stream(plenty, 2);
  Gpt2 model(small, DType::f32, stream);
  initialise(model);
  Generator generator(model, stream);
  const auto written = [&](const SamplingOptions& options, size_t most) {
    std::vector<int32_t> text = some_text(3), shown;
    Random random(1);
    generator.extend(text, 20, options, random, [&](int32_t token) {
      shown.push_back(token);
      return shown.size() < most;
    });
    EXPECT_EQ(std::vector<int32_t>(text.begin() + 3, text.end()), shown);
    return shown;
  };
  const std::vector<int32_t> all = written({}, 100);
  ASSERT_EQ(all.size(), 20u);
  EXPECT_EQ(written({}, 7), std::vector<int32_t>(all.begin(), all.begin() + 7));
  const int32_t end = all[9];
  EXPECT_EQ(written({.end_of_text = end}, 100),
            std::vector<int32_t>(all.begin(), std::ranges::find(all, end)));
  for (const int32_t token : written({.vocabulary = 4}, 100)) EXPECT_LT(token, 4);
}

TEST(Generator, RefusesWhatIsNoText) {
  CpuStream stream(plenty, 1);
  Gpt2 model(small, DType::f32, stream);
  initialise(model);
  Generator generator(model, stream);
  EXPECT_NE(error_of([&] { generator.logits(); }).find("at least one token"), std::string::npos);
  EXPECT_NE(error_of([&] { generator.rehearse(0, 1); }).find("at least one token"),
            std::string::npos);
  for (const int32_t token : {-1, 50}) {
    const std::vector<int32_t> text{1, token};
    EXPECT_NE(error_of([&] { generator.read(text); }).find("not in [0, 50)"), std::string::npos);
  }
  EXPECT_NE(error_of([&] { generator.logits(); }), "") << "none of a refused text is kept";
}

}  // namespace
}  // namespace spool::testing
