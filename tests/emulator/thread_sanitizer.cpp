#include "thread_sanitizer.h"

#include "fiber.h"

namespace emulator {
namespace {

class DeviceTrack {
 public:
  void run(void (*work)(void*), void* data) {
    work_ = work;
    data_ = data;
    running_ = true;
    host_.jump(fiber_, /*ordered=*/false);
    running_ = false;
  }
  // Work may run work of another stream.
  bool is_running() const { return running_; }
  void release_done() { release(&running_); }
  void acquire_done() { acquire(&running_); }

 private:
  static void serve();

  static constexpr size_t stack_bytes = size_t{1} << 20;
  Fiber host_, fiber_{&serve, stack_bytes};
  void (*work_)(void*) = nullptr;
  void* data_ = nullptr;
  bool running_ = false;
};

DeviceTrack& device_track() {
  static auto& track = *new DeviceTrack;
  return track;
}

void DeviceTrack::serve() {
  DeviceTrack& self = device_track();
  self.fiber_.arrive();
  while (true) {
    self.work_(self.data_);
    self.release_done();
    self.fiber_.jump(self.host_, /*ordered=*/false);
  }
}

}  // namespace

void as_device(void (*work)(void*), void* data) {
  if (!has_thread_sanitizer() || device_track().is_running()) return work(data);
  device_track().run(work, data);
}

void be_behind_device() {
  if (has_thread_sanitizer()) device_track().acquire_done();
}

}  // namespace emulator
