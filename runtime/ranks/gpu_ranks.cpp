// Ranks with a GPU each.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "spool/runtime/cuda/device.h"
#include "spool/runtime/cuda/nccl.h"
#include "spool/runtime/cuda/nccl_ranks.h"
#include "spool/runtime/ranks/run_ranks.h"
#include "spool/runtime/stream.h"

namespace spool {

#if SPOOL_CUDA
namespace {

void check_nccl() {
  const Nccl found = find_nccl();
  if (!found) fail(ErrorKind::device, "ranks on GPUs exchange by NCCL: ", found.why_not);
}

void check_own_gpus(Communicator& host, const CudaDevice& own) {
  std::array<char, 256> machine = {};
  ::gethostname(machine.data(), machine.size() - 1);
  const std::vector<std::string> gpus = host.gather("GPUs", sentence(machine.data(), own.uuid));
  for (size_t r = 1; r < gpus.size(); ++r) {
    const auto first = std::find(gpus.begin(), gpus.end(), gpus[r]) - gpus.begin();
    check(static_cast<size_t>(first) == r, "rank ", first, " and rank ", r,
          " have the same GPU, and each needs one of its own; CUDA_VISIBLE_DEVICES says which a ",
          "process sees");
  }
}

#if SPOOL_NCCL
// What must not differ between ranks.
void compare_gpus(Communicator& host, const CudaDevice& own) {
  const std::vector<std::string> names = host.gather("names of GPUs", own.name),
                                 libraries = host.gather("versions of NCCL", nccl_in_words()),
                                 drivers = host.gather("drivers", sentence(own.driver / 1000, ".",
                                                                           own.driver % 1000 / 10));
  for (size_t r = 1; r < names.size(); ++r) {
    const auto same = [&](const char* what, const std::vector<std::string>& all) {
      check(all[r] == all[0], "rank 0 and rank ", r, " differ in ", what, ": ", all[0], " and ",
            all[r], "; ranks on GPUs of one kind, with the same software, can train together");
    };
    same("their GPUs", names);
    same("their NCCL", libraries);
    same("the driver of CUDA", drivers);
  }
}
#endif

}  // namespace
#endif

int gpu_count() {
#if SPOOL_CUDA
  return cuda_device_count();
#else
  return 0;
#endif
}

void check_gpus([[maybe_unused]] int ranks, [[maybe_unused]] int gpus) {
#if SPOOL_CUDA
  if (ranks <= gpus) return ranks > 1 ? check_nccl() : void();
  const bool is_chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  if (gpus == 0 && !is_chosen) check_device({DeviceType::cuda});  // which says what is missing
  const std::string fewer =
      gpus > 0 ? sentence("start ", gpus, gpus > 1 ? " ranks, " : " rank, ") : std::string();
  fail_setting(ErrorKind::invalid, {"ranks", "device"}, ranks,
               " ranks on one machine need as many GPUs, and it has ", gpus,
               is_chosen ? " in CUDA_VISIBLE_DEVICES; name more there, " : "; ", fewer,
               is_chosen || gpus > 0 ? "or " : "", "choose the device cpu");
#else
  fail_setting(ErrorKind::device, {"device"},
               "device cuda: this build has no CUDA backend; use the device cpu");
#endif
}

Device gpu_of_rank([[maybe_unused]] Communicator& ranks) {
#if SPOOL_CUDA
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  const std::vector<std::string> hosts = ranks.gather("machines", host.data());
  const auto own = hosts.begin() + ranks.rank();
  const auto before = static_cast<int>(std::count(hosts.begin(), own, *own));
  const int gpus = gpu_count();
  const auto of_machine = static_cast<int>(std::ranges::count(hosts, *own));
  const bool is_chosen = gpus == 1 && of_machine > 1;  // by a launcher
  if (!is_chosen) check_gpus(of_machine, gpus);
  const int index = is_chosen ? 0 : before;
  check_own_gpus(ranks, cuda_device(index));
  return {DeviceType::cuda, index};
#else
  fail_setting(ErrorKind::device, {"device"},
               "device cuda: this build has no CUDA backend; use the device cpu");
#endif
}

std::shared_ptr<Communicator> on_device(std::shared_ptr<Communicator> host, Device device) {
  if (device.type != DeviceType::cuda) return host;
#if SPOOL_CUDA
  if (host->size() == 1 && !find_nccl()) return host;
  check_nccl();
#endif
  check_device(device);
#if SPOOL_NCCL
  check_own_gpus(*host, cuda_device(device.index));
  compare_gpus(*host, cuda_device(device.index));
  return ranks_of_nccl(std::move(host), device.index);
#else
  return host;
#endif
}

}  // namespace spool
