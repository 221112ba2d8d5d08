#include "spool/models/inference/token_pass.h"

#include <algorithm>
#include <bit>

#include "spool/kernels/elementwise.h"

namespace spool {
namespace {

// Rows of a cache of some rows that a graph reads: a power of two, or all.
int64_t rows_of_graph(int64_t needed, int64_t capacity) {
  constexpr int64_t least = 64;  // fewer are read at the same cost
  const auto power = std::bit_ceil(static_cast<uint64_t>(std::max(needed, least)));
  return std::min(static_cast<int64_t>(power), capacity);
}

}  // namespace

TokenPass::TokenPass(Model& model, const Tensor& logits, Stream& stream)
    : model_(model), stream_(stream), logits_(logits) {
  if (!std::holds_alternative<CudaArchitecture>(stream.architecture())) return;
  const Shape shape{1 + 3 * logits.shape()[0]};
  inputs_ =
      Tensor({shape, DType::i32}, stream, {.name = "token inputs", .purpose = Purpose::input});
}

void TokenPass::prepare(const KeyValueCache& cache) {
  if (!inputs_ || cache.length() > 0 || known_.contains(cache.rows())) return;
  const std::vector<int32_t> zeros(static_cast<size_t>(cache.rows()));
  upload(/*place=*/0, {.tokens = zeros, .positions = zeros, .first = zeros});
  enqueue(cache, cache.capacity());
  known_.insert(cache.rows());
}

void TokenPass::run(KeyValueCache& cache, const Rows& rows) {
  upload(cache.length(), rows);
  const int64_t needed = cache.length() + 1;
  if (!known_.contains(cache.rows()) || !stream_.captures() || stream_.trace()) {
    enqueue(cache, needed);
    known_.insert(cache.rows());
  } else {
    replay(cache, rows_of_graph(needed, cache.capacity()));
  }
  cache.advance(1);
}

void TokenPass::replay(const KeyValueCache& cache, int64_t rows) {
  graphs_.begin(stream_);
  try {
    graphs_.enqueue(
        {cache.rows(), rows}, [&] { enqueue(cache, rows); }, stream_);
  } catch (...) {
    graphs_.discard();
    throw;
  }
}

void TokenPass::upload(int64_t place, const Rows& rows) {
  std::vector<int32_t> all{static_cast<int32_t>(place)};
  for (const auto& part : {rows.tokens, rows.positions, rows.first}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  write<int32_t>(inputs_.slice({0, std::ssize(all)}), all);
}

void TokenPass::enqueue(const KeyValueCache& cache, int64_t rows) {
  const int64_t B = cache.rows();
  Tape tape(stream_, {.recording = false, .training = false});
  const auto input = [&](int64_t part, const Shape& shape) {
    return tape.input(inputs_.slice({1 + part * B, 1 + (part + 1) * B}).reshape(shape));
  };
  KeyValueCache placed = cache.placed(inputs_.slice({0, 1}), rows);
  const Text text(input(0, {B, 1}), input(1, {B, 1}), input(2, {B}));
  const Tensor hidden = model_.hidden(text, placed).tensor();
  const Tensor last = hidden.reshape({B, model_.shape().channels});
  launch(Cast{.out = logits_.slice({0, B}), .in = model_.logits(tape.input(last)).tensor()},
         stream_);
}

}  // namespace spool
