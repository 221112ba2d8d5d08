// runs: threads
// Passes that extend a key-value cache against whole forward passes without one.

#include "spool/models/families/key_value_cache.h"

#include <algorithm>

#include "spool/runtime/cpu/stream.h"
#include "tests/models/families/gpt2_testing.h"

namespace spool::testing {
namespace {

constexpr size_t plenty = size_t{64} << 20;

// The given rows of each of B texts, where a row has `width` elements.
template <class T>
std::vector<T> cut(const std::vector<T>& all, int64_t B, int64_t width, Range rows) {
  std::vector<T> some;
  const int64_t length = static_cast<int64_t>(all.size()) / B;
  for (int64_t b = 0; b < B; ++b) {
    const auto first = all.begin() + b * length;
    some.insert(some.end(), first + rows.begin * width, first + rows.end * width);
  }
  return some;
}

void expect_hidden_as_without_cache(Gpt2& model, int64_t B, int64_t count, Stream& stream) {
  const int64_t T = model.shape().context, C = model.shape().channels;
  const std::vector<int32_t> text = some_text(B * T);
  const Numbers expected = values(whole_hidden(model, integers({B, T}, text, stream)));
  KeyValueCache cache = model.make_cache(B);
  while (cache.length() < T) {
    const Range rows{cache.length(), std::min(cache.length() + count, T)};
    Tape tape(stream, {.recording = false, .training = false});
    const Tensor tokens = integers({B, rows.size()}, cut(text, B, 1, rows), stream);
    const Tensor hidden = model.hidden(tape.input(tokens), cache).tensor();
    EXPECT_LE(difference(values(hidden), cut(expected, B, C, rows)),
              forward_tolerance(model.dtype()))
        << name(model.dtype()) << ", " << rows.begin << " to " << rows.end;
  }
  Tape tape(stream, {.recording = false, .training = false});
  const Tensor more = integers({B, 1}, some_text(B), stream);
  expect_error(ErrorKind::invalid, {"position", sentence(T)},
               [&] { model.hidden(tape.input(more), cache); });
}

TEST(KeyValueCache, GivesTheHiddenStatesOfAWholePass) {
  CpuStream stream(plenty, 2);
  for (const DType type : floating) {
    Gpt2 model(short_context, type, stream), larger(long_context, type, stream);
    initialise_with_large_weights(model);
    initialise_with_large_weights(larger);
    for (const int64_t count : {1, 2, 5, 13, 24}) {
      expect_hidden_as_without_cache(model, /*B=*/2, count, stream);
    }
    for (const int64_t count : {7, 100, 128}) {
      expect_hidden_as_without_cache(larger, /*B=*/1, count, stream);
    }
  }
}

TEST(KeyValueCache, RefusesMoreTokensAndLayersThanItHasRoomFor) {
  CpuStream stream(plenty, 1);
  KeyValueCache cache(2, {1, 1, 8, 4}, DType::f32, stream);
  cache.advance(5);
  expect_error(ErrorKind::invalid, {"4 tokens after 5"}, [&] { cache.advance(4); });
  expect_error(ErrorKind::invalid, {"layer 2 of 2"}, [&] { cache.layer(2); });
  cache.clear();
  EXPECT_EQ(cache.layer(1).position, 0);
}

TEST(KeyValueCache, RefusesShapesThatMakeNoCache) {
  CpuStream stream(plenty, 1);
  expect_error(ErrorKind::invalid, {"0 layers"}, [&] {
    KeyValueCache(0, {1, 1, 8, 4}, DType::f32, stream);
  });
  expect_error(ErrorKind::invalid, {"(8, 4)", "(B, heads, positions, D)"}, [&] {
    KeyValueCache(2, {8, 4}, DType::f32, stream);
  });
}

TEST(KeyValueCache, RefusesATapeThatRecords) {
  CpuStream stream(plenty, 1);
  Gpt2 model(short_context, DType::f32, stream);
  initialise_with_large_weights(model);
  KeyValueCache cache = model.make_cache();
  Tape tape(stream);
  const Var tokens = tape.input(integers({1, 3}, some_text(3), stream));
  expect_error(ErrorKind::invalid, {"does not record"}, [&] { model.hidden(tokens, cache); });
  EXPECT_EQ(cache.length(), 0);
}

}  // namespace
}  // namespace spool::testing
