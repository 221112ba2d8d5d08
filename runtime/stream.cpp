#include "spool/runtime/stream.h"

#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/meta/stream.h"

namespace spool {

std::unique_ptr<Stream> open_stream(Device device, size_t budget, int threads) {
  if (device.type == DeviceType::meta) return std::make_unique<MetaStream>(Machine{}, budget);
  check(device.type == DeviceType::cpu,
        "device cuda: this build has no CUDA backend; use --device cpu");
  check(device.index == 0, "device cpu:", device.index, ": there is only one cpu device");
  return std::make_unique<CpuStream>(budget, threads);
}

}  // namespace spool
