// Many queries are computed by a kernel of attention without a cache, after their keys and values
// are stored: in bf16 by the one on tensor cores, whatever computes training, if it has the size of
// head.  Few queries have kernels of their own (cached_attention_piece.cuh).

#include "spool/kernels/cached_attention.h"

#include "spool/kernels/cached_attention_sizes.h"
#include "spool/kernels/cuda/attention_forward.cuh"
#include "spool/kernels/cuda/cached_attention_piece.cuh"
#include "spool/kernels/cuda/tensor_attention.cuh"

namespace spool {
namespace cuda {
namespace {

constexpr int store_block = 256;

// A thread moves `wide` elements of D.
template <int wide, class T>
__global__ void __launch_bounds__(store_block)
    store_kernel(CachePart<T> keys, CachePart<T> values, CachedExtents e, int64_t position) {
  struct alignas(wide * sizeof(T)) Few {
    T at[wide];
  };
  const int64_t thread = int64_t{blockIdx.x} * store_block + threadIdx.x, each = e.D / wide;
  const int64_t d = thread % each * wide, t = thread / each % e.T;
  const int64_t kv = thread / each / e.T % e.Hkv, b = thread / each / e.T / e.Hkv;
  if (b >= e.B) return;
  const auto move = [&](const CachePart<T>& part) {
    const T* const from = part.fresh.rows(b, kv).at(t) + d;
    T* const to = part.cache.rows(b, kv).at(position + t) + d;
    *reinterpret_cast<Few*>(to) = *reinterpret_cast<const Few*>(from);
  };
  move(keys);
  move(values);
}

// The arguments, for both ways.
template <class T>
struct Cached {
  const CachedAttention& k;
  CachedExtents e;
  CudaStream& stream;

  HeadArray<T> cache(const View& part) const {
    return {part.as<T>(), e.Hkv * e.P * e.D, e.P * e.D, e.D};
  }
  HeadArray<const T> read_only(const View& part) const {
    const HeadArray<T> all = cache(part);
    return {all.data, all.sequence, all.head, all.row};
  }
  CachePart<T> part(const View& cached, int64_t first) const {
    return {heads_of<const T>(k.qkv, first, e.D), cache(cached)};
  }
  const int32_t* first() const { return k.first ? k.first.as<int32_t>() : nullptr; }
  template <class F>
  bool all(const F& moves) const {
    return moves(k.qkv) && moves(k.y) && moves(k.keys) && moves(k.values);
  }

  void attend_many() const;
  void attend_few() const;
  template <int lanes, int R>
  void launch_pieces() const;
};

template <class T>
void Cached<T>::attend_many() const {
  const bool packed = all([&](const View& v) { return packs<T>(v.data(), e.D); });
  constexpr int size = Pack<T>::size;
  const int64_t threads = e.B * e.Hkv * e.T * (packed ? e.D / size : e.D);
  launch_kernel(
      stream, packed ? store_kernel<size, T> : store_kernel<1, T>,
      {.grid = dim3(unsigned(ceil_div<int64_t>(threads, store_block))), .block = dim3(store_block)},
      part(k.keys, e.key(0)), part(k.values, e.value(0)), e, k.position);
  if (std::is_same_v<T, __nv_bfloat16> && packed && is_tensor_head_size(e.D)) {
    return tensor_attention_cached(k, stream);
  }
  launch_forward<T>({.queries = heads_of<const T>(k.qkv, 0, e.D),
                     .keys = read_only(k.keys),
                     .values = read_only(k.values),
                     .y = heads_of<T>(k.y, 0, e.D),
                     .B = e.B,
                     .H = e.H,
                     .group = e.group(),
                     .length = e.T,
                     .past = k.position,
                     .text_first = first(),
                     .D = static_cast<int>(e.D),
                     .fours = all([&](const View& v) { return by_fours<T>(v, e.D); }),
                     .scale = static_cast<float>(k.scale)},
                    stream);
}

template <class T>
template <int lanes, int R>
void Cached<T>::launch_pieces() const {
  const int64_t count = count_pieces(e.P, k.position + e.T);
  const CachePlace place{k.position, k.place ? k.place.as<int32_t>() : nullptr};
  const PieceArguments<T> arguments{
      .keys = part(k.keys, e.key(0)),
      .values = part(k.values, e.value(0)),
      .queries = heads_of<const T>(k.qkv, 0, e.D),
      .y = heads_of<T>(k.y, 0, e.D),
      .parts = k.workspace.as<float>(),
      .first = first(),
      .place = place,
      .Hkv = e.Hkv,
      .group = e.group(),
      .n = e.T,
      .keys_each = piece_keys(e.P),
      .pieces = count,
      .part_floats = piece_floats(e.D),
      .D = static_cast<int>(e.D),
      .packed = all([&](const View& v) { return packs<T>(v.data(), e.D); }),
      .scale = static_cast<float>(k.scale)};
  const int64_t groups = ceil_div<int64_t>(e.group() * e.T, R);
  launch_kernel(
      stream, piece_kernel<lanes, R, T>,
      {.grid = dim3(unsigned(count * e.B * e.Hkv), unsigned(groups)), .block = dim3(piece_block)},
      arguments);
  if (count == 1) return;
  launch_kernel(stream, merge_pieces_kernel<T>,
                {.grid = dim3(unsigned(e.B * e.H * e.T)), .block = dim3(merge_block)}, arguments.y,
                PartsOfQueries{.data = arguments.parts,
                               .most = count,
                               .floats = arguments.part_floats,
                               .place = place,
                               .keys_each = arguments.keys_each},
                static_cast<const AttentionExtents&>(e));
}

template <class T>
void Cached<T>::attend_few() const {
  const auto launch_lanes = [&]<int lanes>(std::integral_constant<int, lanes>) {
    if (e.group() * e.T == 1) return launch_pieces<lanes, 1>();
    launch_pieces<lanes, piece_warps>();
  };
  dispatch_head(e.D, [&](auto head) {
    launch_lanes(std::integral_constant<int, decltype(head)::value / lane_width>());
  });
}

}  // namespace
}  // namespace cuda

void run(const CachedAttention& k, CudaStream& stream) {
  const CachedExtents e(k);
  if (e.B * e.T == 0) return;
  cuda::dispatch(k.qkv.dtype(), [&](auto x) {
    const cuda::Cached<decltype(x)> cached{k, e, stream};
    if (e.T < cuda::many_queries) return cached.attend_few();
    cached.attend_many();
  });
}

}  // namespace spool
