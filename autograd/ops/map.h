// Public: one of the headers of docs/public-headers.md.
#pragma once

// Element-wise ops from a functor (kernels/map.h):
//
//   Var silu(const Operand& x) { return map(Silu(), x); }
//
// The inputs, one to four, are of one type and broadcast as by add() (ops.h).  The op saves what
// its derivatives read, and only for the gradients that are needed; it can be recomputed and cut
// into chunks as any op.
//
// Applied in a .cpp the op runs on the cpu, and in a CUDA source (.cu) on both.  If both apply one
// functor, it is one op that runs on both, from either.

#include "spool/autograd/op.h"
#include "spool/autograd/tape.h"
#include "spool/kernels/map.h"

#if SPOOL_CUDA && (defined(__CUDACC__) || defined(SPOOL_CUDA_SOURCE))
#define SPOOL_IS_CUDA_SOURCE 1
#include "spool/kernels/cuda/functor_map.cuh"
#else
#define SPOOL_IS_CUDA_SOURCE 0
#endif

namespace spool {
namespace map_details {

// The part of MapOp that does not depend on the functor.
class MapBase : public Op {
 public:
  // Throws if the operands do not broadcast.
  MapBase(const char* name, std::span<const Operand> operands);
  const char* indices() const final { return notation_.c_str(); }
  Specs infer(const Specs& in) const final;

 protected:
  // Arguments of the kernel of backward.
  struct Parts {
    std::array<Grad, max_inputs> dx = {};
    View dy = {};
    std::array<View, max_inputs + 1> slots = {};
    std::array<Broadcast, max_inputs> broadcasts = {};
    bool any = false;  // whether any dx is present
  };
  Slots read_slots(const Needs&, std::span<const uint32_t> reads) const;
  Parts parts(Backward&, std::span<const uint32_t> reads, uint32_t passes) const;

 private:
  std::string notation_;
  std::array<Broadcast, max_inputs> broadcasts_ = {};
  int inputs_, whole_ = 0;  // whole_: the input whose shape is the result's
};

template <class F, int n>
class MapOp final : public MapBase {
  static_assert(std::is_trivially_copyable_v<F>,
                "a functor of map() is copied to devices: it must be trivially copyable");
  static constexpr bool has_attributes = requires(const F& f) { f.attributes(); };
  static_assert(std::is_empty_v<F> || has_attributes,
                "a functor of map() with members has attributes(), by which plans tell one op from "
                "another; see autograd/attributes.h");

 public:
  MapOp(const F& f, std::span<const Operand> operands) : MapBase(F::name, operands), f_(f) {}

  const char* name() const override { return F::name; }
  OpKind kind() const override {
    if constexpr (requires { F::kind; }) return F::kind;
    return n == 1 ? OpKind::activation : OpKind::other;
  }
  std::string attributes() const override {
    if constexpr (has_attributes) return f_.attributes();
    return {};
  }

  void forward(Forward& f) const override {
    const auto [y] = f.outputs<1>();
    f.launch(MapForward<F, n>{y, f.inputs<n>(), f_});
  }
  Slots saves(const Needs& needs) const override { return read_slots(needs, Kernel::reads); }
  void backward(Backward& b) const override {
    const Parts all = parts(b, Kernel::reads, passes());
    if (!all.any) return;
    Kernel k{.dx = {}, .dy = all.dy, .slots = {}, .broadcasts = {}, .f = f_, .workspace = {}};
    std::copy_n(all.dx.begin(), n, k.dx.begin());
    std::copy_n(all.slots.begin(), n + 1, k.slots.begin());
    std::copy_n(all.broadcasts.begin(), n, k.broadcasts.begin());
    b.launch(k);
  }

 private:
  using Kernel = MapBackward<F, n>;
  static constexpr uint32_t passes() {
    if constexpr (requires { F::passes; }) return F::passes;
    return 0;
  }

  F f_;
};

#if SPOOL_IS_CUDA_SOURCE
// Sets the CUDA kernels before main(), if the source applies the op.
template <class F, int n>
struct CudaRegistration {
  static bool add() {
    CudaKernels<F, n>::forward = [](const MapForward<F, n>& k, CudaStream& s) {
      cuda::run_map(k, s);
    };
    CudaKernels<F, n>::backward = [](const MapBackward<F, n>& k, CudaStream& s) {
      cuda::run_map(k, s);
    };
    return true;
  }
  static inline const bool done = add();
};
#endif

}  // namespace map_details

// A CUDA source gets a function of its own, because its definition differs.
#if SPOOL_IS_CUDA_SOURCE
inline namespace cuda_source {
#else
inline namespace cpu_source {
#endif

// f(x...) element by element; each x is a Var or a Parameter, and one at least a Var.
template <class F, class... X>
requires(sizeof...(X) > 0 && (std::convertible_to<X, Operand> && ...)) Var
    map(const F& f, X&&... x) {
  constexpr int n = sizeof...(X);
  const std::array<Operand, sizeof...(X)> operands{Operand(x)...};
#if SPOOL_IS_CUDA_SOURCE
  if constexpr (!map_details::OfLibrary<F>) (void)&map_details::CudaRegistration<F, n>::done;
#endif
  return apply<map_details::MapOp<F, n>>(std::span<const Operand>(operands), f,
                                         std::span<const Operand>(operands));
}

}  // namespace cpu_source or cuda_source

}  // namespace spool
