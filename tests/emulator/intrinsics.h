#pragma once

// Cooperation of threads: barriers, warp operations and atomics; and loads and stores with cache
// hints, which check the alignment of vectors.

#include <cstring>

#include "execution.h"

namespace emulator {

// How a barrier combines the predicates of its threads.
enum class Vote : uint8_t { none, any, all, count };
int barrier(Vote, bool predicate, Location);

enum class Operation : uint8_t {
  none,
  barrier,
  sync,
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  product,  // of matrices, as the two below
  rows,
  rows_transposed,
  ballot,
  add,
  min,
  max,
};

// A lane's part in an operation of its warp.
struct WarpCall {
  Operation operation = Operation::none;
  unsigned mask = 0;
  uint64_t value = 0;
  int argument = 0, width = warpSize;  // for shuffles
  Location where = {};
  void* operands = nullptr;  // for matrices: the lane's part, which the operation changes
};
uint64_t warp_operation(const WarpCall&);

template <class T>
T shuffle(Operation operation, unsigned mask, const T& value, int argument, int width,
          Location where) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_operation({operation, mask, bits, argument, width, where});
  T result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

inline int reduce(Operation operation, unsigned mask, int value, Location where) {
  const auto bits = static_cast<uint64_t>(int64_t{value});
  return static_cast<int>(
      warp_operation({.operation = operation, .mask = mask, .value = bits, .where = where}));
}

template <class T>
T* aligned(T* memory, Location where) {
  if (reinterpret_cast<uintptr_t>(memory) % alignof(T)) fail("misaligned vector access", where);
  return memory;
}

}  // namespace emulator

#define EMULATOR_WHERE emulator::Location where = emulator::Location::here()

inline void __syncthreads(EMULATOR_WHERE) { emulator::barrier(emulator::Vote::none, false, where); }
inline int __syncthreads_or(int predicate, EMULATOR_WHERE) {
  return emulator::barrier(emulator::Vote::any, predicate != 0, where);
}
inline int __syncthreads_and(int predicate, EMULATOR_WHERE) {
  return emulator::barrier(emulator::Vote::all, predicate != 0, where);
}
inline int __syncthreads_count(int predicate, EMULATOR_WHERE) {
  return emulator::barrier(emulator::Vote::count, predicate != 0, where);
}

inline void __syncwarp(unsigned mask = ~0u, EMULATOR_WHERE) {
  emulator::warp_operation({.operation = emulator::Operation::sync, .mask = mask, .where = where});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_WHERE) {
  return static_cast<unsigned>(emulator::warp_operation({.operation = emulator::Operation::ballot,
                                                         .mask = mask,
                                                         .value = predicate != 0,
                                                         .where = where}));
}
inline int __any_sync(unsigned mask, int predicate, EMULATOR_WHERE) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATOR_WHERE) {
  return __ballot_sync(mask, predicate, where) == mask;
}

#define EMULATOR_SHUFFLE(name, operation)                                                          \
  template <class T>                                                                               \
  T name(unsigned mask, T value, int argument, int width = warpSize, EMULATOR_WHERE) {             \
    return emulator::shuffle(emulator::Operation::operation, mask, value, argument, width, where); \
  }
EMULATOR_SHUFFLE(__shfl_sync, shuffle)
EMULATOR_SHUFFLE(__shfl_up_sync, shuffle_up)
EMULATOR_SHUFFLE(__shfl_down_sync, shuffle_down)
EMULATOR_SHUFFLE(__shfl_xor_sync, shuffle_xor)

inline int __reduce_add_sync(unsigned mask, int value, EMULATOR_WHERE) {
  return emulator::reduce(emulator::Operation::add, mask, value, where);
}
inline int __reduce_min_sync(unsigned mask, int value, EMULATOR_WHERE) {
  return emulator::reduce(emulator::Operation::min, mask, value, where);
}
inline int __reduce_max_sync(unsigned mask, int value, EMULATOR_WHERE) {
  return emulator::reduce(emulator::Operation::max, mask, value, where);
}

inline void __threadfence() {}
inline void __threadfence_block() {}

// Not inline: the race checker must not take them for plain accesses.
float atomicAdd(float* to, float value);
double atomicAdd(double* to, double value);
int atomicAdd(int* to, int value);
unsigned atomicAdd(unsigned* to, unsigned value);
unsigned long long atomicAdd(unsigned long long* to, unsigned long long value);
int atomicMax(int* to, int value);
unsigned atomicExch(unsigned* to, unsigned value);
unsigned atomicCAS(unsigned* to, unsigned expected, unsigned value);

template <class T>
T __ldg(const T* from, EMULATOR_WHERE) {
  return *emulator::aligned(from, where);
}
template <class T>
T __ldcs(const T* from, EMULATOR_WHERE) {
  return *emulator::aligned(from, where);
}
template <class T>
T __ldcg(const T* from, EMULATOR_WHERE) {
  return *emulator::aligned(from, where);
}
template <class T>
void __stcs(T* to, std::type_identity_t<T> value, EMULATOR_WHERE) {
  *emulator::aligned(to, where) = value;
}
template <class T>
void __stcg(T* to, std::type_identity_t<T> value, EMULATOR_WHERE) {
  *emulator::aligned(to, where) = value;
}
