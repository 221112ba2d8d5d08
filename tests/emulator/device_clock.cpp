#include "device_clock.h"

#include <utility>

namespace emulator {
namespace {

thread_local const char* next_name = "";

}  // namespace

DeviceClock& device_clock() {
  static DeviceClock clock;
  return clock;
}

const char* name_next_work(const char* name) { return std::exchange(next_name, name); }

std::function<void()> timed(std::function<void()> work) {
  const std::string name = std::exchange(next_name, "");
  const DeviceClock& clock = device_clock();
  if (!clock.time_of || name.empty()) return work;
  return [work = std::move(work), time = clock.time_of(name)] {
    work();
    device_clock().now += time;
  };
}

std::chrono::steady_clock::time_point tell_time() {
  using Clock = std::chrono::steady_clock;
  DeviceClock& clock = device_clock();
  if (!clock.time_of) return Clock::now();
  const Duration told = clock.now;
  clock.now += clock.event;
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(told));
}

}  // namespace emulator
