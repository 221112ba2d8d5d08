#pragma once

// Runs the blocks of a grid one after the other, and the threads of a block in turns: a thread runs
// until it waits for others, at a barrier or an operation of its warp.  A thread gets a fiber when
// it first runs, and passes it on to another thread at its end: a kernel without barriers needs one
// fiber and no switch.

#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "intrinsics.h"
#include "shared_memory.h"
#include "tensor_cores.h"

namespace emulator {

constexpr int max_threads = 1024;

class Scheduler {
 public:
  void run(void (*kernel)(void*), void* arguments, dim3 grid, dim3 block, size_t dynamic_bytes);

  // Indices of the running thread.
  int barrier(Vote, bool predicate, Location);
  uint64_t warp_operation(const WarpCall&);
  [[noreturn]] void fail(const std::string& what);

  SharedMemory& shared() { return shared_; }
  AsyncCopies& copies();  // of the running thread
  // Unique over all blocks of all launches.
  uint64_t block_number() const { return block_number_; }

 private:
  struct Thread {
    uint3 index;
    unsigned lane;
    int warp;
    Fiber* fiber;   // null until it first runs
    WarpCall call;  // its latest
    uint64_t result;
  };
  struct Warp {
    unsigned exist, ready, waiting, left;  // lanes as bits
  };
  struct Ended {};  // thrown to leave a kernel that has failed

  void begin_block(dim3 block);
  void run_block(dim3 block);
  void forget_threads();

  static void serve_forever();
  Thread* serve();
  Fiber* free_fiber();

  unsigned choose(unsigned bits);
  Thread* next();
  void set_current(Thread*);
  void make_ready(int warp, unsigned lanes);
  void wait();
  void leave();
  [[noreturn]] void deadlock();

  void release_barrier();

  void check_call(const Warp&, const WarpCall&, unsigned lane, unsigned others);
  void finish(const Warp&, const WarpCall&);
  uint64_t combine(const WarpCall&, const Thread* lanes);
  void combine_matrices(Operation, const Thread* lanes);
  uint64_t fetch(const WarpCall&, const Thread* lanes, int lane);

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  Fiber host_;
  Fiber* fiber_ = nullptr;  // the running one

  std::vector<Thread> threads_;
  Thread* current_ = nullptr;
  Warp warps_[max_threads / warpSize] = {};
  unsigned ready_warps_ = 0;
  int count_ = 0, live_ = 0;
  uint64_t block_number_ = 0, random_ = 1;
  Config config_;

  int arrived_ = 0, in_favour_ = 0, outcome_ = 0;  // at the barrier of the block
  Vote vote_ = Vote::none;
  Location barrier_at_;

  void (*kernel_)(void*) = nullptr;
  void* arguments_ = nullptr;
  SharedMemory shared_;
  std::vector<AsyncCopies> copies_;  // of threads; empty until one copies
  std::string error_;
};

Scheduler& scheduler();

}  // namespace emulator
