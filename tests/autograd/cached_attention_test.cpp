// cached_attention() on a tape: the shapes it takes, and that it is for inference only.

#include "spool/autograd/ops.h"
#include "spool/runtime/cpu/stream.h"
#include "tests/runtime/testing.h"

namespace spool::testing {
namespace {

struct Wrong {
  Shape qkv, keys, values;
  Heads heads;
  int64_t position;
  const char* words;
};

TEST(CachedAttentionOp, RefusesShapesThatDoNotFit) {
  CpuStream stream(size_t{1} << 20, 1);
  const Shape qkv{1, 4, 4 * 8}, cache{1, 1, 10, 8};
  const Heads heads{.query = 2, .key = 1};
  for (const Wrong& w : {Wrong{qkv, cache, cache, heads, 7, "4 tokens from position 7"},
                         {qkv, cache, cache, heads, -1, "position -1"},
                         {qkv, cache, {1, 1, 11, 8}, heads, 0, "values of f32"},
                         {qkv, {2, 1, 10, 8}, {2, 1, 10, 8}, heads, 0, "keys of f32"},
                         {qkv, cache, cache, {.query = 3, .key = 2}, 0, "cannot share"},
                         {qkv, cache, cache, {.query = 1, .key = 1}, 0, "1 query and 1 key"},
                         {{4, 32}, cache, cache, heads, 0, "(B, n, (H + 2 Hkv) D)"}}) {
    const KeyValueLayer layer{.keys = Tensor({w.keys}, stream),
                              .values = Tensor({w.values}, stream),
                              .position = w.position};
    expect_error(ErrorKind::invalid, {w.words}, [&] {
      Tape tape(stream, {.recording = false});
      cached_attention(tape.input(Tensor({w.qkv}, stream)), layer, w.heads);
    });
  }
}

TEST(CachedAttentionOp, NeedsATapeThatDoesNotRecord) {
  CpuStream stream(size_t{1} << 20, 1);
  const auto zeros = [&](const Shape& shape) {
    const Tensor t({shape}, stream);
    write<float>(t, std::vector<float>(static_cast<size_t>(shape.numel())));
    return t;
  };
  const KeyValueLayer layer{.keys = zeros({1, 1, 10, 8}), .values = zeros({1, 1, 10, 8})};
  const Tensor qkv = zeros({1, 4, 3 * 8});
  Tape recording(stream);
  expect_error(ErrorKind::invalid, {"does not record"},
               [&] { cached_attention(recording.input(qkv), layer, {}); });
  Tape other(stream, {.recording = false});
  EXPECT_EQ(cached_attention(other.input(qkv), layer, {}).shape(), (Shape{1, 4, 8}));
}

}  // namespace
}  // namespace spool::testing
