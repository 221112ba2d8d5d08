// Public: one of the headers of docs/public-headers.md.
#pragma once

// Makes element-wise kernels from a functor, which has the value of one element, of one to four
// inputs, and its derivative:
//
//   struct Silu {
//     static constexpr const char* name = "silu";
//     SPOOL_HOST_DEVICE auto value(auto x) const { return x * math::sigmoid(x); }
//     SPOOL_HOST_DEVICE auto derivative(auto x) const {
//       const auto s = math::sigmoid(x);
//       return s * (1 + x * (1 - s));
//     }
//   };
//
// x is float or double.  A derivative's parameters are the inputs and, if it has one more, the
// value y; it does not read those of type Unread, and backward does not keep them.  So exp has
// derivative(Unread, auto y) { return y; }.  If it reads several, they have one type T.  A functor
// of several inputs has a derivative by each, which begins with By<0>, By<1>, ...:
//
//   struct Div {
//     static constexpr const char* name = "div";
//     template <class T>
//     SPOOL_HOST_DEVICE T value(T a, T b) const { return a / b; }
//     template <class T>
//     SPOOL_HOST_DEVICE T derivative(By<0>, Unread, T b) const { return 1 / b; }
//     template <class T>
//     SPOOL_HOST_DEVICE T derivative(By<1>, Unread, T b, T y) const { return -y / b; }
//   };
//
// A functor may also have
//   static constexpr double flops                 of a value, by which its time is foretold
//   static constexpr OpKind kind                  of the op; by default an activation of one input
//   static constexpr uint32_t passes              bit k: the derivative by input k is 1
//   std::string attributes() const                its members in words; a functor with members must
//
// autograd/ops/map.h makes an op of it.  The kernels run on the cpu, and on cuda if a CUDA source
// of the program applies the op.  One input at least has the shape of y; the others have it too, or
// are broadcast: a row (C) as long as y's last dimension, a number for each row (N.., 1), or one
// number.  Their gradients are summed over what they are broadcast to, in an order that depends on
// the shapes alone.

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "spool/kernels/functions.h"
#include "spool/kernels/launch.h"

namespace spool {

// A parameter of a derivative that it does not read.
struct Unread {
  Unread() = default;
  template <class T>
  SPOOL_HOST_DEVICE constexpr Unread(const T&) {}
};

// The input by which a functor of several inputs is differentiated.
template <int k>
struct By {};

// How an input is broadcast to y.
enum class Broadcast : uint8_t { none, row, column, number };

namespace map_details {

constexpr int max_inputs = 4;
template <int n>
using Indices = std::make_index_sequence<static_cast<size_t>(n)>;

// An argument that only parameters of type Unread accept.
struct Nothing {};

template <int k, bool tagged, class T, class F, class... V>
concept TemplateDerivative =
    (tagged && requires(const F& f, V... v) { f.template derivative<T>(By<k>{}, v...); }) ||
    (!tagged && requires(const F& f, V... v) { f.template derivative<T>(v...); });
template <int k, bool tagged, class F, class... V>
concept PlainDerivative = (tagged &&
                           requires(const F& f, V... v) { f.derivative(By<k>{}, v...); }) ||
                          (!tagged && requires(const F& f, V... v) { f.derivative(v...); });
template <int k, bool tagged, class T, class F, class... V>
SPOOL_HOST_DEVICE T derivative(const F& f, V... v) {
  if constexpr (TemplateDerivative<k, tagged, T, F, V...>) {
    if constexpr (tagged) {
      return f.template derivative<T>(By<k>{}, v...);
    } else {
      return f.template derivative<T>(v...);
    }
  } else if constexpr (tagged) {
    return static_cast<T>(f.derivative(By<k>{}, v...));
  } else {
    return static_cast<T>(f.derivative(v...));
  }
}

template <class F, int n, int k>
struct DerivativeOf {
  static constexpr bool tagged = n > 1;

  // Whether it takes that many arguments, one of which is Nothing.  A template would deduce T from
  // Nothing, so it is told T.
  template <size_t nothing, size_t... i>
  static constexpr bool fits(std::index_sequence<i...>) {
    if constexpr (TemplateDerivative<k, tagged, float, F, decltype(float(i))...>) {
      return TemplateDerivative<k, tagged, float, F,
                                std::conditional_t<i == nothing, Nothing, float>...>;
    } else {
      return PlainDerivative<k, tagged, F, std::conditional_t<i == nothing, Nothing, float>...>;
    }
  }
  static constexpr bool has_y = fits<size_t{n} + 1>(Indices<n + 1>());
  static constexpr size_t parameters = n + (has_y ? 1 : 0);
  static_assert(
      fits<size_t{n} + 1>(std::make_index_sequence<parameters>()),
      "a functor of map() needs a derivative for each input, with the inputs and possibly "
      "the value as parameters; see kernels/map.h");

  // Whether it reads input s, or y for s == n.
  template <size_t s>
  static constexpr bool reads = s < parameters && !fits<s>(std::make_index_sequence<parameters>());

  // get(std::integral_constant<size_t, s>()) is the value of slot s.
  template <class T, class Get, size_t... s>
  SPOOL_HOST_DEVICE static T call(const F& f, const Get& get, std::index_sequence<s...>) {
    return derivative<k, tagged, T>(f, argument<s>(get)...);
  }
  template <size_t s, class Get>
  SPOOL_HOST_DEVICE static auto argument(const Get& get) {
    if constexpr (reads<s>) {
      return get(std::integral_constant<size_t, s>());
    } else {
      return Unread();
    }
  }
};

// Bit s: the derivative by input k reads slot s, the inputs and then y.
template <class F, int n, int k, size_t... s>
constexpr uint32_t slots_read(std::index_sequence<s...>) {
  return (0u | ... | (DerivativeOf<F, n, k>::template reads<s> ? 1u << s : 0u));
}
template <class F, int n, size_t... k>
constexpr std::array<uint32_t, static_cast<size_t>(n)> reads_of(std::index_sequence<k...>) {
  return {slots_read<F, n, static_cast<int>(k)>(Indices<n + 1>())...};
}

// The functor's name with a suffix.
template <class F>
constexpr size_t name_length = std::string_view(F::name).size();
template <class F, size_t extra>
constexpr auto name_with(const char (&suffix)[extra]) {
  std::array<char, name_length<F> + extra> text{};
  for (size_t i = 0; i < name_length<F>; ++i) text[i] = F::name[i];
  for (size_t i = 0; i < extra; ++i) text[name_length<F> + i] = suffix[i];
  return text;
}
template <class F>
inline constexpr auto forward_name = name_with<F>("_forward");
template <class F>
inline constexpr auto backward_name = name_with<F>("_backward");

template <class F>
constexpr double flops() {
  if constexpr (requires { F::flops; }) return F::flops;
  return 4;
}

// Whether a shape broadcasts to y, and how.
bool fits(const Shape& x, const Shape& y, Broadcast& broadcast);

void check_forward(const char* name, const View& y, std::span<const View> x);
void check_backward(const char* name, std::span<const Grad> dx, const View& dy,
                    std::span<const View> slots, std::span<const uint32_t> reads,
                    std::span<const Broadcast> broadcasts);
size_t workspace(std::span<const Grad> dx, const View& dy, std::span<const Broadcast>,
                 const CpuArchitecture&);
size_t workspace(std::span<const Grad> dx, const View& dy, std::span<const Broadcast>,
                 const CudaArchitecture&);

// y[j] = f(x[0][j], x[1][j], ...) and dx[j] = dy[j] f'(slots...) for j < count, all of one type.
using ValueLoop = void (*)(const void* f, int64_t count, void* y, const void* const* x);
using DerivativeLoop = void (*)(const void* f, int64_t count, void* dx, const void* dy,
                                const void* const* slots);
struct ValueLoops {
  ValueLoop f32, f64;
};
struct DerivativeLoops {
  DerivativeLoop f32, f64;
};

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define SPOOL_LOOP_OF_ELEMENTS _Pragma("GCC ivdep")
#else
#define SPOOL_LOOP_OF_ELEMENTS
#endif

template <class F, class T, size_t... i>
void value_loop(const F f, int64_t count, T* y, const void* const* x, std::index_sequence<i...>) {
  const std::array<const T*, sizeof...(i)> in{static_cast<const T*>(x[i])...};
  SPOOL_LOOP_OF_ELEMENTS
  for (int64_t j = 0; j < count; ++j) y[j] = f.value(in[i][j]...);
}
template <class F, int n, class T>
void value_loop(const void* f, int64_t count, void* y, const void* const* x) {
  value_loop(*static_cast<const F*>(f), count, static_cast<T*>(y), x, Indices<n>());
}

// Element j of slot s.  A lambda would be the host's alone.
template <class T>
struct ElementOf {
  const T* const* slots;
  int64_t j;
  template <class Slot>
  SPOOL_HOST_DEVICE T operator()(Slot) const {
    return slots[Slot::value][j];
  }
};

template <class F, int n, int k, class T, size_t... s>
void derivative_loop(const F f, int64_t count, T* dx, const T* dy, const void* const* slots,
                     std::index_sequence<s...> parameters) {
  const T* const in[] = {static_cast<const T*>(slots[s])...};
  SPOOL_LOOP_OF_ELEMENTS
  for (int64_t j = 0; j < count; ++j) {
    dx[j] = dy[j] * DerivativeOf<F, n, k>::template call<T>(f, ElementOf<T>{in, j}, parameters);
  }
}
template <class F, int n, int k, class T>
void derivative_loop(const void* f, int64_t count, void* dx, const void* dy,
                     const void* const* slots) {
  derivative_loop<F, n, k>(*static_cast<const F*>(f), count, static_cast<T*>(dx),
                           static_cast<const T*>(dy), slots,
                           std::make_index_sequence<DerivativeOf<F, n, k>::parameters>());
}

}  // namespace map_details

// How an input of this shape is broadcast to y; throws if it cannot be.
Broadcast broadcast_of(const char* name, const Shape& x, const Shape& y);

// y = f(x...)
template <class F, int n>
struct MapForward {
  static_assert(1 <= n && n <= map_details::max_inputs, "map() takes one to four inputs");
  static constexpr const char* name = map_details::forward_name<F>.data();
  View y;
  std::array<View, static_cast<size_t>(n)> x;
  F f = {};

  static bool has_cuda_kernel();
  void check_arguments() const { map_details::check_forward(name, y, x); }
  Cost cost() const {
    double moved = bytes(y);
    for (const View& one : x) moved += bytes(one);
    return {map_details::flops<F>() * static_cast<double>(y.numel()), moved,
            accumulator(y.dtype())};
  }
};

// dx[k] (+)= dy f'(by k), summed over what x[k] is broadcast to.  Absent gradients are not
// computed.  The slots are the inputs and then y; those that no wanted derivative reads may be
// absent.  A dx that is not broadcast may share the memory of dy; two dx of one value are added up.
template <class F, int n>
struct MapBackward {
  static constexpr const char* name = map_details::backward_name<F>.data();
  // Bit s of reads[k]: the derivative by input k reads slot s.
  static constexpr std::array<uint32_t, static_cast<size_t>(n)> reads =
      map_details::reads_of<F, n>(map_details::Indices<n>());

  std::array<Grad, static_cast<size_t>(n)> dx;
  View dy;
  std::array<View, static_cast<size_t>(n) + 1> slots;
  std::array<Broadcast, static_cast<size_t>(n)> broadcasts = {};
  F f = {};
  View workspace = {};

  static bool has_cuda_kernel() { return MapForward<F, n>::has_cuda_kernel(); }
  void check_arguments() const {
    map_details::check_backward(name, dx, dy, slots, reads, broadcasts);
  }
  Cost cost() const {
    double moved = bytes(dy), wanted = 0;
    for (const View& one : slots) moved += bytes(one);
    for (const Grad& one : dx) {
      moved += bytes(one);
      if (one) wanted += map_details::flops<F>() + 1;
    }
    return {wanted * static_cast<double>(dy.numel()), moved, accumulator(dy.dtype())};
  }
  size_t workspace_bytes(const CpuArchitecture& a) const {
    return map_details::workspace(dx, dy, broadcasts, a);
  }
  size_t workspace_bytes(const CudaArchitecture& a) const {
    return map_details::workspace(dx, dy, broadcasts, a);
  }
};

namespace map_details {

void run_forward(CpuStream&, const View& y, std::span<const View> x, const void* f,
                 const ValueLoops&);
struct BackwardArguments {
  std::span<const Grad> dx;
  View dy;
  std::span<const View> slots;
  std::span<const uint32_t> reads;
  std::span<const Broadcast> broadcasts;
  View workspace;
  const void* f;
};
void run_backward(CpuStream&, const BackwardArguments&, std::span<const DerivativeLoops>);

// The CUDA kernels of a functor; a CUDA source of the program sets them, before main().
template <class F, int n>
struct CudaKernels {
  static inline void (*forward)(const MapForward<F, n>&, CudaStream&) = nullptr;
  static inline void (*backward)(const MapBackward<F, n>&, CudaStream&) = nullptr;
};

// A functor of the library, whose kernels are compiled there, for both devices.
template <class F>
concept OfLibrary = requires {
  typename F::OfSpool;
};

template <class F, int n>
void run_on_cpu(const MapForward<F, n>& k, CpuStream& stream) {
  run_forward(stream, k.y, k.x, &k.f, {value_loop<F, n, float>, value_loop<F, n, double>});
}
template <class F, int n, size_t... i>
void run_on_cpu(const MapBackward<F, n>& k, CpuStream& stream, std::index_sequence<i...>) {
  const std::array<DerivativeLoops, static_cast<size_t>(n)> loops{
      DerivativeLoops{derivative_loop<F, n, static_cast<int>(i), float>,
                      derivative_loop<F, n, static_cast<int>(i), double>}...};
  run_backward(stream, {k.dx, k.dy, k.slots, k.reads, k.broadcasts, k.workspace, &k.f}, loops);
}

}  // namespace map_details

template <class F, int n>
void run(const MapForward<F, n>& k, CpuStream& stream) {
  map_details::run_on_cpu(k, stream);
}
template <class F, int n>
void run(const MapBackward<F, n>& k, CpuStream& stream) {
  map_details::run_on_cpu(k, stream, map_details::Indices<n>());
}
template <class F, int n>
void run(const MapForward<F, n>& k, CudaStream& stream) {
  map_details::CudaKernels<F, n>::forward(k, stream);
}
template <class F, int n>
void run(const MapBackward<F, n>& k, CudaStream& stream) {
  map_details::CudaKernels<F, n>::backward(k, stream);
}

// Defined in kernels/cpu/functors.cpp and kernels/cuda/functors.cu.
template <map_details::OfLibrary F, int n>
void run(const MapForward<F, n>&, CpuStream&);
template <map_details::OfLibrary F, int n>
void run(const MapBackward<F, n>&, CpuStream&);
template <map_details::OfLibrary F, int n>
void run(const MapForward<F, n>&, CudaStream&);
template <map_details::OfLibrary F, int n>
void run(const MapBackward<F, n>&, CudaStream&);

template <class F, int n>
bool MapForward<F, n>::has_cuda_kernel() {
  return map_details::OfLibrary<F> || map_details::CudaKernels<F, n>::forward != nullptr;
}

}  // namespace spool
