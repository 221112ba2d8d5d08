#pragma once

// What tests count of emulated NCCL's work.

#include <cstdint>

namespace emulator::nccl {

struct Counts {
  uint64_t exchanges = 0;        // that ran in this process
  uint64_t by_copy_engines = 0;  // those that would have taken no multiprocessor
};
Counts counts();

// For the emulator: counts an exchange.
void count_exchange(bool by_copy_engines);
// Adds a line to the file EMULATOR_NCCL_COUNTS, if the environment names one.
void write_counts(int rank, int ranks);

}  // namespace emulator::nccl
