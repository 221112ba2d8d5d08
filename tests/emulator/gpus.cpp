#include "gpus.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime_api.h"

namespace emulator {
namespace {

int all_gpus() {
  const char* const text = std::getenv("EMULATOR_DEVICES");
  return text && *text ? std::clamp(std::atoi(text), 0, max_devices) : default_devices;
}

std::vector<int> list_visible() {
  std::vector<int> seen;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; !text && i < all_gpus(); ++i) seen.push_back(i);
  const std::string list = text ? text : "";
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const int gpu = std::atoi(list.substr(at, comma - at).c_str());
    if (gpu < 0 || gpu >= all_gpus()) break;  // as CUDA does, which sees none behind that
    seen.push_back(gpu);
    at = comma + 1;
  }
  return seen;
}

}  // namespace

int visible_gpus() { return static_cast<int>(list_visible().size()); }

int gpu_of(int device) {
  const std::vector<int> seen = list_visible();
  const auto index = static_cast<size_t>(device);
  return index < seen.size() ? seen[index] : device;
}

}  // namespace emulator
