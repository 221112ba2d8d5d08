// Ranks with a GPU each.

#include <unistd.h>

#include <algorithm>
#include <array>

#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/nccl.h"
#include "spool/runtime/cuda/nccl_ranks.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/stream.h"

namespace spool {

Device gpu_of_rank([[maybe_unused]] Communicator& ranks) {
#if SPOOL_CUDA
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  const std::vector<std::string> hosts = ranks.gather("machines", host.data());
  const auto own = hosts.begin() + ranks.rank();
  const auto before = static_cast<int>(std::count(hosts.begin(), own, *own));
  const int gpus = cuda_device_count();
  const auto of_machine = std::ranges::count(hosts, *own);
  if (gpus == 1 && of_machine > 1) return {DeviceType::cuda, 0};  // a launcher's choice
  const std::string instead = gpus > 0 ? sentence("; start ", gpus, " ranks") : "";
  check_setting(before < gpus, {"ranks", "device"}, of_machine,
                " ranks on one machine need as many GPUs, and it has ", gpus, instead,
                ", or choose the device cpu");
  return {DeviceType::cuda, before};
#else
  fail_setting(ErrorKind::device, {"device"},
               "device cuda: this build has no CUDA backend; use the device cpu");
#endif
}

std::shared_ptr<Communicator> on_device(std::shared_ptr<Communicator> host, Device device) {
  if (device.type != DeviceType::cuda) return host;
  check_device(device);
#if SPOOL_NCCL
  return ranks_of_nccl(std::move(host), device.index);
#elif SPOOL_CUDA
  fail(ErrorKind::device, find_nccl().why_not);
#else
  return host;
#endif
}

}  // namespace spool
