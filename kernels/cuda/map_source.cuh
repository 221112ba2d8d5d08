#pragma once

// The inputs of the kernels of kernels/map.h, which may be broadcast along the output y: a row of
// it, or one number for each row or for all.

#include "spool/kernels/cuda/map.cuh"
#include "spool/kernels/map.h"

namespace spool::cuda {

// Where element i lies in y, if anything is broadcast.
struct Place {
  int64_t row = 0, column = 0;
  __device__ __forceinline__ Place(int64_t i, int64_t columns) {
    if (columns == 0) return;
    if (i >> 32 == 0 && columns >> 32 == 0) {  // a division of 64 bits is much slower
      row = static_cast<uint32_t>(i) / static_cast<uint32_t>(columns);
    } else {
      row = i / columns;
    }
    column = i - row * columns;
  }
};

// Elements that are loaded of an argument: n, or the one that stands for all.
template <int n, class T>
struct Elements {
  Raw<n, T> raw = {};
  T one = from_float<T>(0);
};

// An argument of a functor, and how it is broadcast to y.
template <class T>
struct Source {
  const T* data = nullptr;
  Broadcast broadcast = Broadcast::none;

  __device__ __forceinline__ bool is_one() const {
    return broadcast == Broadcast::column || broadcast == Broadcast::number;
  }
  // Elements [i, i + n) of y, which lie at `place`, of an argument that is `whole`, or of any.
  template <int n, bool whole>
  __device__ __forceinline__ Elements<n, T> load(int64_t i, const Place& place) const {
    Elements<n, T> all;
    if (whole || broadcast == Broadcast::none || broadcast == Broadcast::row) {
      const bool in_order = whole || broadcast == Broadcast::none;
      all.raw = load_raw<n>(data + (in_order ? i : place.column));
    } else {
      all.one = data[broadcast == Broadcast::column ? place.row : 0];
    }
    return all;
  }
  template <int n, bool whole>
  __device__ __forceinline__ Floats<n> floats(const Elements<n, T>& loaded) const {
    Floats<n> all = floats_of(loaded.raw);
    if constexpr (!whole) {
      if (is_one()) all = repeated<n>(to_float(loaded.one));
    }
    return all;
  }
};

}  // namespace spool::cuda
