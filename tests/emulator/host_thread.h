#pragma once

// CUDA calls the functions that cudaLaunchHostFunc enqueues on a thread of its own; so does the
// emulator, one at a time, while the thread that waits for the stream stands still.

#include <functional>

namespace emulator {

// Runs work() there, and returns when it has ended.
void on_host_thread(const std::function<void()>& work);

}  // namespace emulator
