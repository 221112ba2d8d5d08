// cached_attention() on a tape: the shapes it takes, that it is for inference only, and that its
// index notation is true.

#include "spool/autograd/checks/op_check.h"
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

// It has no backward, and writes to its caches in forward, so only its forward is covered here.
op_checks::AppliedOp applied_cached_attention() {
  constexpr int64_t B = 3, new_tokens = 2, D = 4, positions = 6;
  constexpr Heads heads{.query = 4, .key = 2};
  CpuStream stream(op_checks::op_memory, 1);
  const auto numbers = [&](const Shape& shape, uint64_t seed) {
    const Tensor t = normal(shape, DType::f64, stream, seed);
    return op_checks::HostTensor{t.spec(), values(t)};
  };
  op_checks::AppliedOp applied{
      .inputs = {numbers({B, new_tokens, (heads.query + 2 * heads.key) * D}, 1),
                 numbers({B, heads.key, positions, D}, 2),
                 numbers({B, heads.key, positions, D}, 3)},
      .operands = {0, 1, 2},
      .recording = false};
  const auto tensor = [&](size_t i) { return Tensor(applied.inputs[i].spec, stream); };
  Tape tape(stream, {.recording = false});
  const KeyValueLayer layer{.keys = tensor(1), .values = tensor(2), .position = 3};
  cached_attention(tape.input(tensor(0)), layer, heads);
  Program program = tape.take_program();
  applied.op = std::move(program.nodes.front().op);
  return op_checks::claiming(applied, applied.op->indices());
}

TEST(CachedAttentionOp, HasATrueNotation) {
  const OpSample sample{.name = "cached_attention"};
  op_checks::Findings findings(sample, {DeviceType::cpu});
  check_notation(findings, applied_cached_attention());
  for (const std::string& failure : findings.all()) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace spool::testing
