// CUDA-on-CPU emulator: lets a .cu kernel file compile as plain C++20.  No toolkit needed.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
// __shared__ is not defined, on purpose: shared memory is asked for by this.
#define EMULATOR_SHARED(T, name)                  \
  static thread_local emulator::Slot name##_slot; \
  auto& name = name##_slot.get<T>(#name, emulator::Loc::current())

// ---- vector types ------------------------------------------------------------------------
#define EMULATOR_VEC(T, N, A2, A4)                             \
  struct alignas(A2) N##2 {                                    \
    T x, y;                                                    \
  };                                                           \
  struct N##3 {                                                \
    T x, y, z;                                                 \
  };                                                           \
  struct alignas(A4) N##4 {                                    \
    T x, y, z, w;                                              \
  };                                                           \
  inline N##2 make_##N##2(T x, T y) { return {x, y}; }         \
  inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
  inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VEC(float, float, 8, 16)
EMULATOR_VEC(int, int, 8, 16)
EMULATOR_VEC(unsigned, uint, 8, 16)
EMULATOR_VEC(short, short, 4, 8)
EMULATOR_VEC(unsigned short, ushort, 4, 8)
struct alignas(16) double2 {
  double x, y;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
inline constexpr int warpSize = 32;
// Set by the scheduler at every fiber switch; constinit => direct TLS access, no init wrapper.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

namespace emulator {
struct Loc {
  const char* file = "";
  int number = 0;
  static Loc current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  const char* file_name() const { return file; }
  int line() const { return number; }
};
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
enum class Order { forward, reverse, random };
struct Config {
  Order order = Order::forward;  // order of lanes, warps and blocks
  uint64_t seed = 1;
  int os_threads = 1;  // blocks spread over this many OS threads
  bool strict = true;  // UB that hardware tolerates (exit before barrier) is an error
};
Config& config();

enum class Op : uint8_t {
  none,
  barrier,
  syncwarp,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  radd,
  rmin,
  rmax
};
int barrier(int pred, int kind, Loc l);  // kind: 0 plain, 1 or, 2 and, 3 count
uint64_t collective(Op op, unsigned mask, uint64_t v, int arg, int width, Loc l);
void* dynamic_shared();
unsigned lane_id();
[[noreturn]] void fail(const std::string& msg, Loc l);
void race_atomic(const void* p, size_t n, void* pc);  // no-op unless EMULATOR_RACE
struct Slot {                                         // one per CU_SHARED site, per OS thread
  uint64_t serial = 0;
  void* p = nullptr;
  template <class T>
  T& get(const char* name, Loc l) {
    return *static_cast<T*>(raw(sizeof(T), alignof(T), name, l));
  }
  void* raw(size_t n, size_t align, const char* name, Loc l);
};

template <class T>
uint64_t pack(T v) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t r = 0;
  std::memcpy(&r, &v, sizeof v);
  return r;
}
template <class T>
T unpack(uint64_t r) {
  T v;
  std::memcpy(&v, &r, sizeof v);
  return v;
}

using Thunk = void (*)(void*);
void run(Thunk f, void* args, dim3 grid, dim3 block, size_t smem);
template <class... P, class... A>
void launch(void (*k)(P...), dim3 grid, dim3 block, size_t smem, A&&... a) {
  static_assert((!std::is_reference_v<P> && ...), "kernel parameters are passed by value");
  static_assert((std::is_trivially_copyable_v<P> && ...),
                "kernel parameters must be trivially copyable");
  struct Pack {
    void (*k)(P...);
    std::tuple<P...> t;
  } pk{k, std::tuple<P...>(static_cast<P>(a)...)};
  run(
      [](void* q) {
        auto* s = static_cast<Pack*>(q);
        std::apply(s->k, s->t);
      },
      &pk, grid, block, smem);
}
template <class T>
T ld(const T* p, Loc l) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(T)) fail("misaligned vector access", l);
  return *p;
}
}  // namespace emulator

// ---- barriers, warp collectives ----------------------------------------------------------
#define EMULATOR_L emulator::Loc l = emulator::Loc::current()
inline void __syncthreads(EMULATOR_L) { emulator::barrier(0, 0, l); }
inline int __syncthreads_or(int p, EMULATOR_L) { return emulator::barrier(p, 1, l); }
inline int __syncthreads_and(int p, EMULATOR_L) { return emulator::barrier(p, 2, l); }
inline int __syncthreads_count(int p, EMULATOR_L) { return emulator::barrier(p, 3, l); }
inline void __syncwarp(unsigned m = ~0u, EMULATOR_L) {
  emulator::collective(emulator::Op::syncwarp, m, 0, 0, 32, l);
}
inline unsigned __ballot_sync(unsigned m, int p, EMULATOR_L) {
  return unsigned(emulator::collective(emulator::Op::ballot, m, p != 0, 0, 32, l));
}
inline int __any_sync(unsigned m, int p, EMULATOR_L) { return __ballot_sync(m, p, l) != 0; }
inline int __all_sync(unsigned m, int p, EMULATOR_L) { return __ballot_sync(m, p, l) == m; }
#define EMULATOR_SHFL(NAME, OP)                                                 \
  template <class T>                                                            \
  T NAME(unsigned m, T v, int a, int w = 32, EMULATOR_L) {                      \
    return emulator::unpack<T>(                                                 \
        emulator::collective(emulator::Op::OP, m, emulator::pack(v), a, w, l)); \
  }
EMULATOR_SHFL(__shfl_sync, shfl)
EMULATOR_SHFL(__shfl_up_sync, shfl_up)
EMULATOR_SHFL(__shfl_down_sync, shfl_down)
EMULATOR_SHFL(__shfl_xor_sync, shfl_xor)
inline int __reduce_add_sync(unsigned m, int v, EMULATOR_L) {
  return int(emulator::collective(emulator::Op::radd, m, uint64_t(int64_t(v)), 0, 32, l));
}
inline int __reduce_min_sync(unsigned m, int v, EMULATOR_L) {
  return int(emulator::collective(emulator::Op::rmin, m, uint64_t(int64_t(v)), 0, 32, l));
}
inline int __reduce_max_sync(unsigned m, int v, EMULATOR_L) {
  return int(emulator::collective(emulator::Op::rmax, m, uint64_t(int64_t(v)), 0, 32, l));
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// ---- atomics (out of line: must not be instrumented in race builds) ----------------------
float atomicAdd(float* p, float v);
double atomicAdd(double* p, double v);
int atomicAdd(int* p, int v);
unsigned atomicAdd(unsigned* p, unsigned v);
unsigned long long atomicAdd(unsigned long long* p, unsigned long long v);
int atomicMax(int* p, int v);
unsigned atomicExch(unsigned* p, unsigned v);
unsigned atomicCAS(unsigned* p, unsigned cmp, unsigned v);

// ---- cache-hinted loads and stores -------------------------------------------------------
template <class T>
T __ldg(const T* p, EMULATOR_L) {
  return emulator::ld(p, l);
}
template <class T>
T __ldcs(const T* p, EMULATOR_L) {
  return emulator::ld(p, l);
}
template <class T>
T __ldcg(const T* p, EMULATOR_L) {
  return emulator::ld(p, l);
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> v, EMULATOR_L) {
  emulator::ld(p, l);
  *p = v;
}
template <class T>
void __stcg(T* p, std::type_identity_t<T> v, EMULATOR_L) {
  emulator::ld(p, l);
  *p = v;
}

// ---- math: macros, because glibc declares __expf & co. itself ----------------------------
namespace emulator {
inline float rsqrt_(float x) { return 1.0f / std::sqrt(x); }
inline float exp_(float x) { return ::expf(x); }
inline float log_(float x) { return ::logf(x); }
inline float exp2_(float x) { return ::exp2f(x); }
inline float pow_(float x, float y) { return ::powf(x, y); }
inline float div_(float x, float y) { return x / y; }
inline float fma_(float a, float b, float c) { return std::fma(a, b, c); }
inline float rcp_(float x) { return 1.0f / x; }
inline float sqrt_(float x) { return std::sqrt(x); }
inline void sincospi_(float x, float* sine, float* cosine) {
  const double angle = 3.14159265358979323846 * double(x);
  *sine = float(std::sin(angle));
  *cosine = float(std::cos(angle));
}
}  // namespace emulator
#define rsqrtf emulator::rsqrt_
#define __frsqrt_rn emulator::rsqrt_
#define sincospif emulator::sincospi_
#define __expf emulator::exp_
#define __logf emulator::log_
#define __exp2f emulator::exp2_
#define __powf emulator::pow_
#define __fdividef emulator::div_
#define __fmaf_rn emulator::fma_
#define __frcp_rn emulator::rcp_
#define __fsqrt_rn emulator::sqrt_
using std::max;
using std::min;
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline float __uint_as_float(unsigned i) { return std::bit_cast<float>(i); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __ffs(int x) { return ::__builtin_ffs(x); }

// ---- bf16 shim ---------------------------------------------------------------------------
struct __nv_bfloat16 {
  uint16_t u;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // canonical NaN, as the toolkit
  return {uint16_t((x + 0x7fffu + ((x >> 16) & 1u)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
inline float __bfloat162float(__nv_bfloat16 b) { return std::bit_cast<float>(uint32_t(b.u) << 16); }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 v) {
  return {__bfloat162float(v.x), __bfloat162float(v.y)};
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return {u}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.u; }
