#pragma once

// A kernel is a trivially copyable struct of its arguments that knows its cost(); a backend is an
// overload of run() for its stream.  Every kernel of the engine passes through launch(), or, where
// its operands are on the host, launch_on_host(): the only two that ask which device there is.
//
// A kernel that needs memory besides its arguments has a member `View workspace` and, for each kind
// of device, a function `size_t workspace_bytes(const CpuArchitecture&) const`, of shapes and types
// alone; launch() provides it, on meta as on the device.

#include <type_traits>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/integer.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/tensor.h"

namespace spool {

// Where to write a gradient, and whether to add to what is there.  Absent if nobody wants it.
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

// What is written there is added to what is there.
inline Grad add_to(const View& view) { return {view, /*add=*/true}; }

// What a kernel moves: the bytes of its arguments, and twice those of a gradient it adds to.
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
concept NeedsWorkspace = requires(const Kernel& k, const CpuArchitecture& a) {
  k.workspace;
  k.workspace_bytes(a);
};

// What the kernel needs on such a device.
template <NeedsWorkspace Kernel>
size_t workspace_bytes(const Kernel& kernel, const Architecture& architecture) {
  return std::visit([&](const auto& a) { return kernel.workspace_bytes(a); }, architecture);
}

template <class Kernel>
void dispatch(const Kernel& kernel, Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>, "queued work holds views, never tensors");
  switch (stream.device().type) {
    case DeviceType::meta:
      return static_cast<MetaStream&>(stream).charge(Kernel::name, kernel.cost());
    case DeviceType::cpu: {
      auto& cpu = static_cast<CpuStream&>(stream);
      return cpu.enqueue(Kernel::name, [kernel, &cpu] { run(kernel, cpu); });
    }
    case DeviceType::cuda: {
#if SPOOL_CUDA
      auto& cuda = static_cast<CudaStream&>(stream);
      if constexpr (requires { run(kernel, cuda); }) {
        return cuda.enqueue(Kernel::name, [&] { run(kernel, cuda); });
      }
#endif
      fail(ErrorKind::device, "the kernel ", Kernel::name, " has no form for CUDA in this build");
    }
  }
}

template <class Kernel>
void launch(const Kernel& kernel, Stream& stream) {
  stream.count_launch();
  if constexpr (NeedsWorkspace<Kernel>) {
    const auto floats = static_cast<int64_t>(
        ceil_div(workspace_bytes(kernel, stream.architecture()), sizeof(float)));
    if (floats > 0) {
      const Tensor memory({Shape{floats}, DType::f32}, stream,
                          {.name = Kernel::name, .purpose = Purpose::workspace});
      Kernel with = kernel;
      with.workspace = memory;
      return dispatch(with, stream);
    }
  }
  dispatch(kernel, stream);
}

// Has the host run a kernel that needs no workspace, in its turn in `queue`, a queue of any device,
// with the processors of `host`, which has to be idle.
template <class Kernel>
void launch_on_host(const Kernel& kernel, Stream& host, Stream& queue) {
  static_assert(!NeedsWorkspace<Kernel>);
  if (host.device().type == DeviceType::meta) {
    const Machine& machine = static_cast<MetaStream&>(host).machine();
    return queue.host_work(Kernel::name, machine.seconds(kernel.cost()), {});
  }
  auto& cpu = static_cast<CpuStream&>(host);
  queue.host_work(Kernel::name, /*seconds=*/0, [kernel, &cpu] { run(kernel, cpu); });
}

}  // namespace spool
