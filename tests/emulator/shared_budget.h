#pragma once

// The memory that programs have of each device.  With EMULATOR_MEMORY in the environment, the path
// of a file, those that name the same file share the devices' memory, as on a machine with a GPU:
// the file lists what each process has, under a lock, and what processes had that ended is free.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "runtime_api.h"

namespace emulator {

class SharedBudget {
 public:
  SharedBudget();
  ~SharedBudget();
  SharedBudget(const SharedBudget&) = delete;
  SharedBudget& operator=(const SharedBudget&) = delete;

  size_t used(int device);
  // False if the device has less than that left of its memory.
  bool take(int device, size_t bytes, size_t of);
  void give_back(int device, size_t bytes);

 private:
  // What one process has.
  struct Share {
    long process = 0;
    size_t bytes[max_devices] = {};
  };
  // Reads the shares of processes that run, lets `change` edit them, and keeps that if it says so.
  void locked(const std::function<bool(std::vector<Share>&)>& change);
  static size_t sum(const std::vector<Share>&, int device);

  int file_ = -1;
  std::vector<Share> own_;  // without a file
};

// Of this process's devices.
SharedBudget& budget();

}  // namespace emulator
