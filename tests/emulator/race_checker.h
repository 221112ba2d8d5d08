#pragma once

// Finds races between the threads of a kernel: accesses to the same shared or device memory, one of
// them a write, without an order between them.  For every byte it keeps the last write and the last
// reads by two threads: the block, and the number of barriers of the block and of the warp so far.
// So a race is found in any order of the threads.  Streams order launches and copies.
//
// Bytes have one cell for as long as every access was to all of them: four, then two, then one.
//
// race_hooks.cpp reports the accesses of code compiled with -fsanitize=thread.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "device_types.h"
#include "watcher.h"

namespace emulator {

class RaceChecker final : public Watcher {
 public:
  enum class Kind : uint8_t { read, write, atomic };

  // An access by the running thread; accesses of the host are ignored.
  void access(const void* memory, size_t bytes, Kind kind, const void* caller) {
    if (!running_) return;
    running_ = false;  // the linker may have chosen instrumented code of the standard library
    judge(reinterpret_cast<uintptr_t>(memory), bytes, kind, caller);
    running_ = true;
  }

  void memory_made(const void* memory, size_t bytes) override;
  void memory_gone(const void* memory) override;
  void launch_begins() override { launch_ = block_ + 1; }
  void block_begins(const void* shared, size_t shared_bytes) override;
  void thread_runs(int thread) override;
  void barrier() override { ++barriers_; }
  void barrier_of(int warp) override { ++warp_barriers_[warp]; }
  void atomic(const void* memory, size_t bytes, const void* caller) override {
    access(memory, bytes, Kind::atomic, caller);
  }
  std::string block_ends() override;

 private:
  // All zeros: no access.
  struct Access {
    uint32_t block;  // unique over all launches, from 1 on
    uint16_t barriers, warp_barriers;
    uint16_t thread;
    Kind kind;
    uint32_t code;  // offset in the program
  };
  struct Cell {
    Access write, read, earlier_read;  // reads by different threads
  };
  static constexpr uintptr_t word_bytes = 4, page_bytes = 4096,
                             page_words = page_bytes / word_bytes;
  struct Page {
    uint8_t halvings[page_words];        // of each word's cells: 0, 1 or 2
    Cell cells[word_bytes][page_words];  // of byte b of each word, if a cell begins there
    void halve(size_t word);
  };
  struct Free {
    void operator()(Page* page) const { std::free(page); }
  };
  struct Race {
    Access before, now;
    bool shared = false;
    uint3 block = {}, thread = {};
    std::string sentence() const;
  };

  void judge(uintptr_t begin, size_t bytes, Kind, const void* caller);
  void judge(Cell&, const Access&, bool shared);
  bool conflict(const Access& before, const Access& now, bool shared) const;
  void report(const Access& before, const Access& now, bool shared);
  bool of_device(uintptr_t address);
  Page& page_of(uintptr_t address);

  inline static thread_local bool running_ = false;  // whether this host thread runs a kernel
  uint32_t launch_ = 1, block_ = 0;
  uint16_t barriers_ = 0, warp_barriers_[32] = {};
  int thread_ = 0;
  uintptr_t shared_ = 0, shared_bytes_ = 0;

  std::map<uintptr_t, uintptr_t> memories_;  // end, by begin
  uintptr_t recent_begin_ = 0, recent_end_ = 0;
  std::unordered_map<uintptr_t, std::unique_ptr<Page, Free>> pages_;  // by address / page_bytes
  struct Known {
    uintptr_t number = 0;
    Page* page = nullptr;
  } known_[64];
  std::unique_ptr<Race> found_;
};

RaceChecker& race_checker();

}  // namespace emulator
