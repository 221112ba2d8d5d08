// Public: one of the headers of docs/public-headers.md.
#pragma once

// A kernel is a trivially copyable struct of its arguments that knows its cost(); a backend is an
// overload of run() for its stream.  Every kernel passes through launch() or, if its operands are
// on the host, launch_on_host(): only these two depend on a stream's device.
//
// A kernel that needs memory besides its arguments has a member `View workspace` and, for each kind
// of device, a function `size_t workspace_bytes(const CpuArchitecture&) const` that depends only on
// shapes and types.  launch() allocates the workspace, on meta as on the device.
//
// A kernel whose work depends on the device has a member `Cost cost(const CudaArchitecture&) const`
// besides, or one for CpuArchitecture; see cost_on().
//
// A kernel says which arguments fit each other in a member `void check_arguments() const`, which
// throws if they do not (arguments.h).  It is called at every launch, on meta too, before anything
// is allocated or enqueued.

#include <type_traits>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/tensor.h"

namespace spool {

// The memory a gradient is written to, and whether it is added to what is there.  Absent if the
// gradient is not needed.
struct Grad {
  View view;
  bool accumulate = false;

  Grad() = default;
  Grad(const View& v) : view(v) {}
  Grad(const Tensor& t) : view(t) {}
  Grad(const View& v, bool add) : view(v), accumulate(add) {}
  explicit operator bool() const { return bool(view); }
  size_t nbytes() const { return view.nbytes(); }
  Grad slice(Range rows) const { return {view.slice(rows), accumulate}; }
};

// A gradient that is added to what is in `view`.
inline Grad add_to(const View& view) { return {view, /*add=*/true}; }

// Bytes that a kernel moves: each argument once, a gradient that it adds to twice.
template <class T>
double bytes_of(const T& t) {
  const auto bytes = static_cast<double>(t.nbytes());
  if constexpr (std::is_same_v<T, Grad>) return t.accumulate ? 2 * bytes : bytes;
  return bytes;
}
template <class... Arguments>
double bytes(const Arguments&... all) {
  return (0.0 + ... + bytes_of(all));
}

template <class Kernel>
concept ChecksArguments = requires(const Kernel& k) {
  k.check_arguments();
};

// Throws if the kernel's arguments do not fit each other.
template <class Kernel>
void check_arguments(const Kernel& kernel) {
  if constexpr (ChecksArguments<Kernel>) kernel.check_arguments();
}

template <class Kernel>
concept NeedsWorkspace = requires(const Kernel& k, const CpuArchitecture& a) {
  k.workspace;
  k.workspace_bytes(a);
};

// Bytes of workspace the kernel needs on a device of this architecture.
template <NeedsWorkspace Kernel>
size_t workspace_bytes(const Kernel& kernel, const Architecture& architecture) {
  return std::visit([&](const auto& a) { return kernel.workspace_bytes(a); }, architecture);
}

template <class Kernel, class SomeArchitecture>
concept CostDependsOn = requires(const Kernel& k, const SomeArchitecture& a) {
  k.cost(a);
};

// The kernel's work on a device of this architecture.
template <class Kernel>
Cost cost_on(const Kernel& kernel, const Architecture& architecture) {
  if constexpr (CostDependsOn<Kernel, CpuArchitecture>) {
    if (const auto* cpu = std::get_if<CpuArchitecture>(&architecture)) return kernel.cost(*cpu);
  }
  if constexpr (CostDependsOn<Kernel, CudaArchitecture>) {
    if (const auto* cuda = std::get_if<CudaArchitecture>(&architecture)) return kernel.cost(*cuda);
  }
  return kernel.cost();
}

// Whether the kernel has a run() for streams of this type, here or in another build.
template <class Kernel, class DeviceStream>
concept RunsOn = requires(const Kernel& kernel, DeviceStream& stream) {
  run(kernel, stream);
};

// Whether the kernel runs on cuda.  If another source may provide its CUDA kernel, its
// has_cuda_kernel() says whether one does.
template <class Kernel>
bool runs_on_cuda() {
  if constexpr (requires { Kernel::has_cuda_kernel(); }) return Kernel::has_cuda_kernel();
  return RunsOn<Kernel, CudaStream>;
}

template <class Kernel>
void dispatch(const Kernel& kernel, Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>, "queued work holds views, never tensors");
  switch (stream.device().type) {
    case DeviceType::meta: {
      auto& meta = static_cast<MetaStream&>(stream);
      if (!runs_on_cuda<Kernel>()) meta.add_missing(DeviceType::cuda, Kernel::name);
      return meta.charge(Kernel::name, cost_on(kernel, meta.architecture()));
    }
    case DeviceType::cpu: {
      auto& cpu = static_cast<CpuStream&>(stream);
      return cpu.enqueue(Kernel::name, [kernel, &cpu] { run(kernel, cpu); });
    }
    case DeviceType::cuda: {
#if SPOOL_CUDA
      auto& cuda = static_cast<CudaStream&>(stream);
      if constexpr (RunsOn<Kernel, CudaStream>) {
        if (runs_on_cuda<Kernel>()) return cuda.enqueue(Kernel::name, [&] { run(kernel, cuda); });
      }
#endif
      fail(ErrorKind::device, "the kernel ", Kernel::name,
           " has no CUDA implementation in this build");
    }
  }
}

template <class Kernel>
void launch(const Kernel& kernel, Stream& stream) {
  check_arguments(kernel);
  stream.count_launch();
  if constexpr (NeedsWorkspace<Kernel>) {
    const auto floats = static_cast<int64_t>(
        ceil_div(workspace_bytes(kernel, stream.architecture()), sizeof(float)));
    if (floats > 0) {
      const Tensor memory({Shape{floats}, DType::f32}, stream,
                          {.name = Name::never_freed(Kernel::name), .purpose = Purpose::workspace});
      Kernel with_workspace = kernel;
      with_workspace.workspace = memory;
      return dispatch(with_workspace, stream);
    }
  }
  dispatch(kernel, stream);
}

// Runs a kernel without workspace on the host, in order with the work of `queue`, a stream of any
// device, on the threads of `host`, which must be idle.
template <class Kernel>
void launch_on_host(const Kernel& kernel, Stream& host, Stream& queue) {
  static_assert(!NeedsWorkspace<Kernel>);
  check_arguments(kernel);
  if (host.device().type == DeviceType::meta) {
    const Machine& machine = static_cast<MetaStream&>(host).machine();
    return queue.host_work(Kernel::name, kernel_seconds(machine, Kernel::name, kernel.cost()), {});
  }
  auto& cpu = static_cast<CpuStream&>(host);
  queue.host_work(Kernel::name, /*seconds=*/0, [kernel, &cpu] { run(kernel, cpu); });
}

}  // namespace spool
