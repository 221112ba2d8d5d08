#pragma once

// The kernels of kernels/map.h on cuda, for one functor.

#include "spool/kernels/cuda/column_sums.cuh"
#include "spool/kernels/cuda/map_source.cuh"
#include "spool/kernels/cuda/map_sums.cuh"
#include "spool/kernels/map.h"
#include "spool/kernels/map_sizes.h"

namespace spool::cuda {

// Element j of slot s.
template <int n>
struct ElementOf {
  const Floats<n>* slots;
  int j;
  template <class Slot>
  __host__ __device__ __forceinline__ float operator()(Slot) const {
    return slots[Slot::value].at[j];
  }
};

// y = f(x...); `columns` is 0 if nothing is broadcast.
template <class F, int inputs, class T>
struct ValueEach {
  T* y;
  Source<T> x[inputs];
  int64_t columns;
  F f;

  template <int n>
  __device__ void apply(int64_t i) const {
    if (inputs == 1 || (n > 1 && columns == 0)) return put<n, true>(i, Place(0, 0));
    if constexpr (inputs > 1) put<n, false>(i, Place(i, columns));
  }
  template <int n, bool whole>
  __device__ __forceinline__ void put(int64_t i, const Place& place) const {
    Elements<n, T> loaded[inputs];
    Floats<n> in[inputs], out;
#pragma unroll
    for (int k = 0; k < inputs; ++k) loaded[k] = x[k].template load<n, whole>(i, place);
#pragma unroll
    for (int k = 0; k < inputs; ++k) in[k] = x[k].template floats<n, whole>(loaded[k]);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      out.at[k] = value(ElementOf<n>{in, k}, std::make_index_sequence<inputs>());
    }
    store<n>(y + i, out);
  }
  template <class Get, size_t... k>
  __device__ __forceinline__ float value(const Get& get, std::index_sequence<k...>) const {
    return f.value(get(std::integral_constant<size_t, k>())...);
  }
};

// A bit for each derivative that reads slot s.
template <class F, int inputs, int s, class = std::make_index_sequence<inputs>>
struct Readers;
template <class F, int inputs, int s, size_t... k>
struct Readers<F, inputs, s, std::index_sequence<k...>> {
  template <size_t i>
  using Derivative = map_details::DerivativeOf<F, inputs, static_cast<int>(i)>;
  static constexpr uint32_t bits =
      ((Derivative<k>::template reads<s> ? uint32_t{1} << k : uint32_t{0}) | ...);
};

// The terms of gradients, dy f'.  `whole`: no input is broadcast.
template <class F, int inputs, class T>
struct Terms {
  const T* dy;
  Source<T> slots[inputs + 1];
  int64_t columns;
  F f;

  template <int n>
  struct Loaded {
    static constexpr int width = n;
    Raw<n, T> dy;
    Elements<n, T> slots[inputs + 1];
  };

  // Loads what the wanted derivatives, a bit for each, read of n elements from i on.
  template <int n, bool whole>
  __device__ __forceinline__ Loaded<n> load(int64_t i, const Place& place, uint32_t wanted) const {
    Loaded<n> all;
    all.dy = load_raw<n>(dy + i);
    load_slots<n, whole>(all, i, place, wanted, std::make_index_sequence<inputs + 1>());
    return all;
  }
  template <int n, bool whole, size_t... s>
  __device__ __forceinline__ void load_slots(Loaded<n>& all, int64_t i, const Place& place,
                                             uint32_t wanted, std::index_sequence<s...>) const {
    (load_slot < static_cast<int>(s), n, whole || s == inputs > (all, i, place, wanted), ...);
  }
  template <int s, int n, bool whole>
  __device__ __forceinline__ void load_slot(Loaded<n>& all, int64_t i, const Place& place,
                                            uint32_t wanted) const {
    constexpr uint32_t readers = Readers<F, inputs, s>::bits;
    if constexpr (readers != 0) {
      if (wanted & readers) all.slots[s] = slots[s].template load<n, whole>(i, place);
    }
  }

  // The term by input k.
  template <int k, int n, bool whole>
  __device__ __forceinline__ Floats<n> by(const Loaded<n>& all) const {
    using Derivative = map_details::DerivativeOf<F, inputs, k>;
    Floats<n> in[inputs + 1] = {}, out = floats_of(all.dy);
    read<Derivative, n, whole>(in, all, std::make_index_sequence<inputs + 1>());
#pragma unroll
    for (int j = 0; j < n; ++j) {
      out.at[j] *= Derivative::template call<float>(
          f, ElementOf<n>{in, j}, std::make_index_sequence<Derivative::parameters>());
    }
    return out;
  }
  template <class Derivative, int n, bool whole, size_t... s>
  __device__ __forceinline__ void read(Floats<n>* in, const Loaded<n>& all,
                                       std::index_sequence<s...>) const {
    (read_one < Derivative::template reads<s>, static_cast<int>(s), n,
     whole || s == inputs > (in[s], all), ...);
  }
  template <bool reads, int s, int n, bool whole>
  __device__ __forceinline__ void read_one(Floats<n>& in, const Loaded<n>& all) const {
    if constexpr (reads) in = slots[s].template floats<n, whole>(all.slots[s]);
  }
};

// dx[k] (+)= dy f'(by k) for the inputs that are not broadcast, in order.  One dx may share the
// memory of dy, so all is read before any is written.  Two dx may be one, as for x times x.
template <class F, int inputs, class T, class Out>
struct WholeEach {
  Terms<F, inputs, T> terms;
  Sink<Out> dx[inputs];

  template <int n>
  __device__ void apply(int64_t i) const {
    constexpr auto all = std::make_index_sequence<inputs>();
    if (inputs == 1 || (n > 1 && terms.columns == 0)) return put_all<n, true>(i, Place(0, 0), all);
    if constexpr (inputs > 1) put_all<n, false>(i, Place(i, terms.columns), all);
  }
  template <int n, bool whole, size_t... k>
  __device__ __forceinline__ void put_all(int64_t i, const Place& place,
                                          std::index_sequence<k...>) const {
    const uint32_t wanted = ((dx[k].data ? uint32_t{1} << k : uint32_t{0}) | ...);
    const auto loaded = terms.template load<n, whole>(i, place, wanted);
    const Raw<n, Out> before[inputs] = {before_of<n>(dx[k], i)...};
    (put<static_cast<int>(k), n, whole>(i, loaded, before[k]), ...);
  }
  template <int n>
  __device__ __forceinline__ static Raw<n, Out> before_of(const Sink<Out>& to, int64_t i) {
    if (to.data) return to.template before<n>(i);
    return {};
  }
  template <int k, int n, bool whole>
  __device__ __forceinline__ void put(int64_t i,
                                      const typename Terms<F, inputs, T>::template Loaded<n>& all,
                                      const Raw<n, Out>& before) const {
    if (!dx[k].data) return;
    bool again = false;
    for (int j = 0; j < inputs; ++j) again = again || (j < k && dx[j].data == dx[k].data);
    const Floats<n> x = terms.template by<k, n, whole>(all);
    if (again) return dx[k].template put<n>(i, x);  // to what this thread just wrote
    dx[k].put(i, x, before);
  }
};

// For sum_rows(): the terms by input k at row n, column c.
template <class F, int inputs, int k, class T>
struct TermAt {
  Terms<F, inputs, T> terms;
  static constexpr bool whole = inputs == 1;
  template <int width>
  __device__ __forceinline__ auto load(int64_t n, int64_t c) const {
    Place place(0, 0);
    place.row = n;
    place.column = c;
    return terms.template load<width, whole>(n * terms.columns + c, place, uint32_t{1} << k);
  }
  template <class Loaded>
  __device__ __forceinline__ auto floats(const Loaded& loaded) const {
    return terms.template by<k, Loaded::width, whole>(loaded);
  }
  template <int width>
  __device__ Floats<width> at(int64_t n, int64_t c) const {
    return floats(load<width>(n, c));
  }
};

template <class F, int inputs, class T>
class MapBackwardOnCuda {
 public:
  using Kernel = MapBackward<F, inputs>;
  MapBackwardOnCuda(const Kernel& k, CudaStream& stream)
      : k_(k), stream_(stream), terms_{k.dy.template as<T>(), {}, 0, k.f} {
    bool any = false;
    for (int s = 0; s <= inputs; ++s) {
      const Broadcast broadcast =
          s < inputs ? k.broadcasts[static_cast<size_t>(s)] : Broadcast::none;
      terms_.slots[s] = {k.slots[static_cast<size_t>(s)].template as<T>(), broadcast};
      any |= broadcast != Broadcast::none;
    }
    terms_.columns = any ? k.dy.shape().row() : 0;
  }

  template <size_t... k>
  void run(std::index_sequence<k...>) {
    workspace_ = k_.workspace.data();
    (reduce<static_cast<int>(k)>(), ...);
    // A parameter's gradient may be f32; one that shares the memory of dy has dy's type.
    if constexpr (!std::is_same_v<T, float>) whole<float>(DType::f32);
    whole<T>(k_.dy.dtype());
  }

 private:
  const Grad& dx(int k) const { return k_.dx[static_cast<size_t>(k)]; }
  Broadcast broadcast(int k) const { return k_.broadcasts[static_cast<size_t>(k)]; }

  template <int k>
  void reduce() {
    if constexpr (inputs > 1) {
      if (!dx(k) || broadcast(k) == Broadcast::none) return;
      std::byte* const partials = workspace_;
      workspace_ += map_details::cuda_sum_bytes(broadcast(k), k_.dy.shape());
      const TermAt<F, inputs, k, T> term{terms_};
      const int64_t N = map_details::count_rows(k_.dy.shape());
      if (broadcast(k) == Broadcast::row) {
        return sum_columns<T>(stream_, term, N, dx(k), reinterpret_cast<float*>(partials),
                              by_eights());
      }
      dispatch_gradient<T>(dx(k).view.dtype(), [&](auto out) {
        const Sink<decltype(out)> to(dx(k));
        if (broadcast(k) == Broadcast::number) return sum_to_number(term, to, partials);
        sum_to_column(term, N, to);
      });
    }
  }

  // Whether terms move by eights.
  bool by_eights() const {
    bool aligned = is_aligned(k_.dy) && terms_.columns % map_width == 0;
    for (const View& slot : k_.slots) aligned = aligned && is_aligned(slot);
    return aligned;
  }

  template <class Term, class Out>
  void sum_to_column(const Term& term, int64_t N, const Sink<Out>& to) {
    check(N >> 31 == 0, Kernel::name, ": a number for each of ", N,
          " rows is more than the 2147483647 that a GPU sums at once; cut the batch");
    if (N == 0) return;
    const bool eights = by_eights();
    const int64_t blocks = eights ? ceil_div<int64_t>(N, term_groups) : N;
    launch_kernel(stream_, eights ? sum_of_row<true, Term, Out> : sum_of_row<false, Term, Out>,
                  {.grid = dim3(unsigned(blocks)), .block = dim3(term_block)}, term, N, to);
  }

  template <class Term, class Out>
  void sum_to_number(const Term& term, const Sink<Out>& to, std::byte* memory) {
    auto* const partials = reinterpret_cast<double*>(memory);
    const int64_t count = k_.dy.numel(), piece = map_details::number_piece;
    const int64_t pieces = ceil_div(count, piece);
    const bool eights = by_eights();
    if (pieces > 0) {
      launch_kernel(
          stream_, eights ? sum_of_piece<true, Term> : sum_of_piece<false, Term>,
          {.grid = dim3(unsigned(pieces)), .block = dim3(eights ? warp_lanes : term_block)}, term,
          count, piece, partials);
    }
    launch_kernel(stream_, sum_of_pieces<Out>, {.grid = dim3(1), .block = dim3(term_block)},
                  partials, pieces, to);
  }

  // Writes the gradients of this type.
  template <class Out>
  void whole(DType type) {
    WholeEach<F, inputs, T, Out> each{terms_, {}};
    bool any = false, aligned = true;
    for (int k = 0; k < inputs; ++k) {
      if (!dx(k) || broadcast(k) != Broadcast::none || dx(k).view.dtype() != type) continue;
      each.dx[k] = Sink<Out>(dx(k));
      aligned = aligned && is_aligned(dx(k).view);
      any = true;
    }
    if (!any) return;
    map(stream_, k_.dy.numel(), each, aligned && by_eights());
  }

  const Kernel& k_;
  CudaStream& stream_;
  Terms<F, inputs, T> terms_;
  std::byte* workspace_ = nullptr;
};

template <class F, int inputs>
void run_map(const MapForward<F, inputs>& k, CudaStream& stream) {
  dispatch(k.y.dtype(), [&](auto scalar) {
    using T = decltype(scalar);
    ValueEach<F, inputs, T> each{k.y.template as<T>(), {}, 0, k.f};
    bool aligned = true;
    for (size_t i = 0; i < inputs; ++i) {
      const Broadcast broadcast = broadcast_of("map", k.x[i].shape(), k.y.shape());
      each.x[i] = {k.x[i].template as<T>(), broadcast};
      if (broadcast != Broadcast::none) each.columns = k.y.shape().row();
      aligned = aligned && is_aligned(k.x[i]);
    }
    map(stream, k.y.numel(), each, aligned && each.columns % map_width == 0, k.y);
  });
}

template <class F, int inputs>
void run_map(const MapBackward<F, inputs>& k, CudaStream& stream) {
  dispatch(k.dy.dtype(), [&](auto scalar) {
    MapBackwardOnCuda<F, inputs, decltype(scalar)>(k, stream).run(
        std::make_index_sequence<inputs>());
  });
}

}  // namespace spool::cuda
