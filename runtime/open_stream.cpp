// The devices of this machine, and streams on them.

#include <cstdlib>

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/stream.h"
#include "spool/runtime/memory/host_memory.h"
#include "spool/runtime/meta/stream.h"
#include "spool/runtime/stream.h"

namespace spool {

size_t device_memory(Device device) {
#if SPOOL_CUDA
  if (device.type == DeviceType::cuda) {
    return cuda_device(device.index).bytes_for_an_arena();
  }
#endif
  check(device.type == DeviceType::cpu, "device ", name(device.type), ": its memory is unknown");
  return host_memory();
}

Device default_device() {
  const char* named = std::getenv("SPOOL_DEVICE");
  if (named && *named) return parse_device(named);
#if SPOOL_CUDA
  if (cuda_device_count() > 0) {
    try {
      check_device({DeviceType::cuda});
      return {DeviceType::cuda};
    } catch (const Error&) {  // the device or its driver is too old
    }
  }
#endif
  return {DeviceType::cpu};
}

void check_device(Device device) {
  if (device.type == DeviceType::cuda) {
#if SPOOL_CUDA
    (void)cuda_device(device.index);
#else
    fail_setting(ErrorKind::device, {"device"},
                 "device cuda: this build has no CUDA backend; use the device cpu");
#endif
  }
  check(device.type != DeviceType::cpu || device.index == 0, "device cpu:", device.index,
        ": there is only one cpu device");
}

std::unique_ptr<Stream> open_stream(Device device, size_t budget, int threads) {
  check_device(device);
  if (device.type == DeviceType::meta) return std::make_unique<MetaStream>(Machine{}, budget);
#if SPOOL_CUDA
  if (device.type == DeviceType::cuda) return std::make_unique<CudaStream>(device.index, budget);
#endif
  return std::make_unique<CpuStream>(budget, threads);
}

}  // namespace spool
