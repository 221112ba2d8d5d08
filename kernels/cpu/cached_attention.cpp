#include "spool/kernels/cpu/cached_attention.h"

#include "spool/kernels/cpu/attention_forward.h"
#include "spool/kernels/cpu/row_products.h"

namespace spool {
namespace cpu {
namespace {

template <class T>
void store(const CachedAttention& k, const CachedExtents& e, CpuStream& stream) {
  const auto body = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i % e.T, kv = i / e.T % e.Hkv, b = i / e.T / e.Hkv;
      const int64_t to = e.row(b, kv, k.position + t);
      std::copy_n(HeadRows<const T>(k.qkv, b, e.key(kv), e.D).at(t), e.D, k.keys.as<T>() + to);
      std::copy_n(HeadRows<const T>(k.qkv, b, e.value(kv), e.D).at(t), e.D, k.values.as<T>() + to);
    }
  };
  stream.parallel_for(e.B * e.Hkv * e.T, piece_rows(2 * e.D), body);
}

// The queries of row b before its text's first token.
int64_t padding_of(const CachedAttention& k, const CachedExtents& e, int64_t b) {
  if (!k.first) return 0;
  const int64_t first = k.first.as<int32_t>()[b];
  check(first >= 0, "cached attention: the first token of row ", b, " is ", first);
  return std::clamp<int64_t>(first - k.position, 0, e.T);
}

// Head h of row b from its text's first token on: queries after the padding, with the keys that
// they see.
template <class T>
ForwardHead<T> head_of(const CachedAttention& k, const CachedExtents& e, int64_t b, int64_t h) {
  const int64_t padding = padding_of(k, e, b);
  const int64_t hidden =
      k.first ? std::min<int64_t>(k.first.as<int32_t>()[b], k.position + padding) : 0;
  const int64_t first = e.row(b, h / e.group(), hidden);
  ForwardHead<T> head{.queries = {k.qkv, b, h, e.D},
                      .keys = {k.keys.as<T>() + first, e.D},
                      .values = {k.values.as<T>() + first, e.D},
                      .y = {k.y, b, h, e.D},
                      .D = e.D,
                      .past = k.position + padding - hidden,
                      .scale = k.scale};
  head.queries.data = head.queries.at(padding);
  head.y.data = head.y.at(padding);
  return head;
}

// A query in the padding sees one key, so y is its value.
template <class T>
void copy_padding(const CachedAttention& k, const CachedExtents& e, int64_t b, int64_t h) {
  const HeadRows<const T> values(k.qkv, b, e.value(h / e.group()), e.D);
  const HeadRows<T> y(k.y, b, h, e.D);
  for (int64_t i = 0; i < padding_of(k, e, b); ++i) std::copy_n(values.at(i), e.D, y.at(i));
}

// s[j] = sum_d q[d] keys[j,d]
template <class T>
void score(const T* q, const HeadRows<const T>& keys, int64_t count, int64_t D,
           accumulator_t<T>* s) {
  constexpr int rows = static_cast<int>(Vector<accumulator_t<T>>::lanes);
  int64_t j = 0;
  const auto put = [&](int, const auto& sums) { std::memcpy(s + j, &sums, sizeof sums); };
  const auto put_one = [&](int, const auto& sums) { s[j] = sums[0]; };
  for (; j + rows <= count; j += rows) {
    multiply_rows<T, 1, rows>(q, D, keys.at(j), keys.row, D, put);
  }
  for (; j < count; ++j) multiply_rows<T, 1, 1>(q, D, keys.at(j), keys.row, D, put_one);
}

template <class T>
void attend_row(const ForwardHead<T>& head, int64_t i, accumulator_t<T>* s) {
  using S = accumulator_t<T>;
  const int64_t count = head.past + i + 1;
  score(head.queries.at(i), head.keys, count, head.D, s);
  const auto scale = static_cast<S>(head.scale);
  put_all(count, Sink<S, false>{s}, [=](int64_t j) { return scale * s[j]; });
  const S highest = largest<S>(count, [=](int64_t j) { return s[j]; });
  put_all(count, Sink<S, false>{s}, [=](int64_t j) { return exp(s[j] - highest); });
  const S factor = 1 / sum<S>(count, [=](int64_t j) { return s[j]; });
  T* const y = head.y.at(i);
  add_rows(s, head.values.data, head.values.row, count, head.D,
           [=](int64_t d, S sum) { y[d] = static_cast<T>(factor * sum); });
}

// A piece is a head or, with many queries, a tile of its queries; those with the most keys go
// first.
template <class T>
void attend(const CachedAttention& k, const CachedExtents& e, CpuStream& stream) {
  using S = accumulator_t<T>;
  const size_t each = cached_lane_bytes<S>(e);
  const int64_t heads = e.B * e.H, tiles = has_few_queries(e) ? 1 : tiles_of(e.T);
  stream.parallel_for(heads * tiles, 1, [&](int64_t piece, int64_t, int number) {
    const int64_t b = piece % heads / e.H, h = piece % e.H, tile = tiles - 1 - piece / heads;
    const ForwardHead<T> head = head_of<T>(k, e, b, h);
    const int64_t queries = e.T - padding_of(k, e, b);
    if (tile == 0) copy_padding<T>(k, e, b, h);
    Carver memory(k.workspace.data() + each * static_cast<size_t>(number));
    if (has_few_queries(e)) {
      S* const s = memory.take<S>(e.P);
      for (int64_t i = 0; i < queries; ++i) attend_row(head, i, s);
    } else if (tile * tile_rows < queries) {
      const ForwardLane<S> lane(memory, e.D);
      const int64_t first = tile * tile_rows;
      ForwardPiece<T>(head, lane, {first, std::min(first + tile_rows, queries)}).run();
    }
  });
}

// The same with the position that is in device memory.
CachedAttention at_place(CachedAttention k) {
  if (!k.place) return k;
  const int64_t place = *k.place.as<int32_t>();
  check(place >= 0 && place <= k.position, "cached attention: the place of the new token is ",
        place, ", and may be at most ", k.position);
  k.position = place;
  return k;
}

}  // namespace
}  // namespace cpu

void run(const CachedAttention& given, CpuStream& stream) {
  const CachedAttention k = cpu::at_place(given);
  const CachedExtents e(k);
  cpu::dispatch(k.qkv.dtype(), [&]<class T>(T) {
    cpu::store<T>(k, e, stream);
    cpu::attend<T>(k, e, stream);
  });
}

size_t CachedAttention::workspace_bytes(const CpuArchitecture& architecture) const {
  const CachedExtents e(*this);
  size_t lane = 0;
  cpu::dispatch(qkv.dtype(),
                [&]<class T>(T) { lane = cpu::cached_lane_bytes<cpu::accumulator_t<T>>(e); });
  return lane * static_cast<size_t>(architecture.threads);
}

}  // namespace spool
