#pragma once

// A clock of the emulated device, which tests may switch on.  Time then passes only as the test
// says: by the work of each kernel, by its name, and by each event that tells the time.  So what a
// program makes of measured times can be compared with the truth.
//
// Work of all streams takes its time one after the other.  A copy has the name of its call, such as
// "upload"; work without a name takes no time.

#include <chrono>
#include <functional>
#include <string>

namespace emulator {

using Duration = std::chrono::nanoseconds;

struct DeviceClock {
  // How long the work of this name takes; empty: events tell the host's time.
  std::function<Duration(const std::string& name)> time_of = {};
  Duration event = {};               // what an event that tells the time takes, after it was told
  Duration now = Duration(1 << 20);  // any but 0
};
DeviceClock& device_clock();

// What this thread enqueues next is the work of this name; what it enqueues then has none.  Returns
// the name that the next work had.
const char* name_next_work(const char* name);

// The work, which also takes its time; for the emulated runtime.
std::function<void()> timed(std::function<void()> work);
// The time that an event tells.
std::chrono::steady_clock::time_point tell_time();

}  // namespace emulator
