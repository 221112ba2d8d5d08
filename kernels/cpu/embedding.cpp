#include "spool/kernels/embedding.h"

#include <limits>

#include "spool/kernels/cpu/loops.h"

namespace spool {
namespace {

// Tokens as rows of a part of V rows of the vocabulary.
struct PartOfTokens {
  static constexpr int64_t elsewhere = -1;
  const int32_t* tokens;
  int64_t first, V, whole;

  PartOfTokens(const View& all, const VocabularyPart& part, int64_t rows)
      : tokens(all.as<int32_t>()), first(part.first), V(rows), whole(part.whole_of(rows)) {}

  // The row of the token at position n; throws if it is not in the vocabulary.
  int64_t row(int64_t n) const {
    const int32_t token = tokens[n];
    check(token >= 0 && token < whole, "embedding: token ", token, " at position ", n,
          " is not in [0, ", whole, "), the vocabulary");
    const int64_t v = token - first;
    return v >= 0 && v < V ? v : elsewhere;
  }
};

// The positions of each token of the vocabulary, in order, as linked lists: first[v], then
// next[first[v]] and so on; -1 ends a list.
struct Positions {
  static constexpr int32_t none = -1;
  int32_t *first, *next;  // (V), (N)

  Positions(const PartOfTokens& tokens, int64_t N, const View& workspace)
      : first(workspace.as<int32_t>()), next(first + tokens.V) {
    check(N < std::numeric_limits<int32_t>::max(), "embedding: ", N,
          " tokens are too many for one launch; use a smaller batch or shorter sequences");
    std::fill_n(first, tokens.V, none);
    for (int64_t n = N - 1; n >= 0; --n) {
      const int64_t v = tokens.row(n);
      if (v == PartOfTokens::elsewhere) continue;
      next[n] = first[v];
      first[v] = static_cast<int32_t>(n);
    }
  }
};

// out[c] (+)= sum of dy[n,c] over n = first, next(first), ... while n >= 0.
template <class T, class Next, class Out>
void sum_listed_rows(const T* dy, int64_t C, int64_t first, const Next& next, const Out& out) {
  using A = cpu::accumulator_t<T>;
  constexpr int64_t block = 512;
  if (first < 0) {
    if (!Out::accumulates) std::fill_n(out.to, C, 0.0f);
    return;
  }
  A sum[block];
  for (int64_t begin = 0; begin < C; begin += block) {
    const int64_t width = std::min(block, C - begin);
    std::fill_n(sum, width, A{0});
    const A* total = sum;
    for (int64_t n = first; n >= 0; n = next(n)) {
      const T* row = dy + n * C + begin;
      cpu::put_all(width, cpu::Sink<A, true>{sum}, [=](int64_t c) { return A(row[c]); });
    }
    cpu::put_all(width, out.at(begin), [=](int64_t c) { return total[c]; });
  }
}

template <class T>
void backward_weight(const EmbeddingBackward& k, CpuStream& stream) {
  const int64_t V = k.dweight.view.shape().rows(), C = k.dy.shape().row();
  const Positions positions(PartOfTokens(k.tokens, k.part, V), k.tokens.numel(), k.workspace);
  const auto next = [=](int64_t n) { return int64_t{positions.next[n]}; };
  cpu::dispatch_sink<T>(k.dweight, [&](auto dweight) {
    stream.parallel_for(V, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        sum_listed_rows(k.dy.as<T>(), C, positions.first[v], next, dweight.at(v * C));
      }
    });
  });
}

template <class T>
void backward_positions(const EmbeddingBackward& k, CpuStream& stream) {
  const int64_t rows = k.dpositions.view.shape().rows(), C = k.dy.shape().row();
  const int64_t N = k.tokens.numel(), sequence = k.tokens.shape().row();
  const auto next = [=](int64_t n) { return n + sequence < N ? n + sequence : -1; };
  cpu::dispatch_sink<T>(k.dpositions, [&](auto dpositions) {
    stream.parallel_for(rows, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        sum_listed_rows(k.dy.as<T>(), C, t < std::min(sequence, N) ? t : -1, next,
                        dpositions.at(t * C));
      }
    });
  });
}

template <class T>
void embed_row(const EmbeddingForward& k, const PartOfTokens& tokens, int64_t n, int64_t C) {
  using A = cpu::accumulator_t<T>;
  const int64_t v = tokens.row(n);
  const bool elsewhere = v == PartOfTokens::elsewhere;
  const T* weight = k.weight.as<T>() + (elsewhere ? 0 : v * C);
  const auto y = cpu::plain<T>(k.y).at(n * C);
  if (!k.positions) {
    if (elsewhere) return void(std::fill_n(y.to, C, T(0)));
    return cpu::put_all(C, y, [=](int64_t c) { return weight[c]; });
  }
  const T* position = k.positions.as<T>() + (k.first_position + n % k.tokens.shape().row()) * C;
  if (elsewhere) return void(std::copy_n(position, C, y.to));
  cpu::put_all(C, y, [=](int64_t c) { return A(weight[c]) + A(position[c]); });
}

}  // namespace

void run(const EmbeddingForward& k, CpuStream& stream) {
  const int64_t N = k.tokens.numel(), C = k.y.shape().row();
  const PartOfTokens tokens(k.tokens, k.part, k.weight.shape().rows());
  cpu::dispatch(k.y.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    stream.parallel_for(N, cpu::piece_rows(C), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) embed_row<T>(k, tokens, n, C);
    });
  });
}

void run(const EmbeddingBackward& k, CpuStream& stream) {
  cpu::dispatch(k.dy.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    if (k.dweight) backward_weight<T>(k, stream);
    if (k.dpositions) backward_positions<T>(k, stream);
  });
}

// Bytes of the lists: a first position for each row of the vocabulary, a next one for each token.
size_t EmbeddingBackward::workspace_bytes(const CpuArchitecture&) const {
  if (!dweight) return 0;
  return static_cast<size_t>(dweight.view.shape().rows() + tokens.numel()) * sizeof(int32_t);
}

}  // namespace spool
