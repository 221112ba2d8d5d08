#include "spool/planner/machines/device_identity.h"

#include <spdlog/fmt/fmt.h>

#include <cstdlib>
#include <fstream>

#include "spool/kernels/libraries.h"
#include "spool/runtime/cpu/stream.h"
#include "spool/runtime/cpu/tile_unit.h"
#include "spool/runtime/cuda/device.h"
#include "spool/runtime/hash.h"
#include "spool/runtime/version.h"

namespace spool {
namespace {

std::string processor_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string hash_of(const MatmulAlgorithms& table) {
  Hash hash;
  for (const auto& [form, place] : table.places) {
    hash.add(std::string_view(form));
    hash.add(int64_t{place});
  }
  return fmt::format("{:016x}", hash.state());
}

std::filesystem::path folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  const std::filesystem::path path = value ? value : "";
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

DeviceIdentity identify(const Stream& stream, DType of_products, const MatmulAlgorithms& tuned,
                        int ranks) {
  DeviceIdentity device{{"build", build()},
                        {"device", name(stream.device().type)},
                        {"libraries", library_versions(stream.device().type)},
                        {"products", name(of_products)}};
  if (!tuned.places.empty()) device["algorithms"] = hash_of(tuned);
  if (ranks > 1) device["ranks"] = std::to_string(ranks);
  if (stream.device().type == DeviceType::cpu) {
    const auto& cpu = static_cast<const CpuStream&>(stream);
    const bool emulated = cpu.tile_unit() == TileUnit::emulated;
    device["bf16_products"] = sentence(emulated ? "emulated " : "", name(cpu.cpu().bf16_products));
    device["processor"] = processor_model();
    device["threads"] = std::to_string(cpu.threads());
  }
#if SPOOL_CUDA
  if (stream.device().type == DeviceType::cuda) {
    const CudaDevice gpu = cuda_device(stream.device().index);
    device["processor"] = gpu.name;
    device["driver"] = std::to_string(gpu.driver);
    device["runtime"] = std::to_string(gpu.runtime);
  }
#endif
  return device;
}

std::filesystem::path cache_folder() {
  const std::filesystem::path cache = folder_in("XDG_CACHE_HOME"), home = folder_in("HOME");
  if (!cache.empty()) return cache / "spool";
  return home.empty() ? home : home / ".cache" / "spool";
}

std::filesystem::path table_file(const std::filesystem::path& folder,
                                 const DeviceIdentity& device) {
  Hash hash;
  for (const auto& [key, value] : device) {
    hash.add(std::string_view(key));
    hash.add(std::string_view(value));
  }
  return folder / fmt::format("kernels-{}-{:016x}.json", device.at("device"), hash.state());
}

}  // namespace spool
