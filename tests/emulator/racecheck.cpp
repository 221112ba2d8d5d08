// Exact happens-before race detector for emulated kernels.  Kernel files are compiled with
// -fsanitize=thread (g++ then calls __tsan_readN/__tsan_writeN at every access) but linked
// WITHOUT libtsan: this file supplies those functions.  This file itself is not instrumented.
#include "emulator.h"

#include <dlfcn.h>
#include <cstdio>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include "internal.h"

namespace emulator {
namespace {
struct Acc {
  uint32_t blk = 0;
  uint16_t bar = 0, wep = 0;
  uint16_t tid = 0;
  uint8_t atomic = 0;
  uint8_t pad = 0;
  uint32_t pc = 0;
};  // 16 bytes
struct Cell {
  Acc w, r1, r2;
};  // last write, two last readers of different threads
struct Page {
  Cell c[2048];
};  // 4 KiB of memory, 2-byte granules
std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
uintptr_t last_key = ~uintptr_t(0);
Page* last_page = nullptr;
uint32_t blk, launch_first, next_blk = 1;
uint16_t bar, wep[32];
int tid = -1, warp;
const char *sh_lo, *sh_hi;
uintptr_t st_lo, st_n;
std::string first_error;
extern "C" char __executable_start;

bool conflict(const Acc& a) {
  if (!a.blk || a.blk < launch_first) return false;  // earlier launch: ordered
  if (a.blk != blk) return true;                     // other block of this launch
  if (a.tid == uint16_t(tid) || a.bar != bar) return false;
  return !(a.tid / 32 == warp && a.wep != wep[warp]);  // __syncwarp orders a warp
}
void report(const char* what, uintptr_t addr, const Acc& o, void* pc) {
  if (!first_error.empty()) return;
  char b[320];
  std::snprintf(
      b, sizeof b, "race: %s at %s %p: thread %d pc 0x%lx vs %s %u pc 0x%x [block (%u,%u,%u)]",
      what, addr >= uintptr_t(sh_lo) && addr < uintptr_t(sh_hi) ? "shared" : "global", (void*)addr,
      tid, (unsigned long)(uintptr_t(pc) - uintptr_t(&__executable_start) - 1),
      o.blk == blk ? "thread" : "another block's thread", o.tid, o.pc - 1, blockIdx.x, blockIdx.y,
      blockIdx.z);
  first_error = b;
}
inline void access(const void* p, size_t n, bool write, bool atomic, void* pc) {
  if (tid < 0) return;
  const uintptr_t a0 = uintptr_t(p);
  if (a0 - st_lo < st_n) return;  // the thread's own stack
  const bool sh = p >= sh_lo && p < sh_hi;
  for (uintptr_t a = a0 & ~uintptr_t(1); a < a0 + n; a += 2) {
    if ((a >> 12) != last_key) {
      auto& pg = pages[last_key = a >> 12];
      if (!pg) pg = std::make_unique<Page>();
      last_page = pg.get();
    }
    Cell& c = last_page->c[(a & 4095) >> 1];
    auto hit = [&](const Acc& o) {
      return !(sh && o.blk != blk) && !(atomic && o.atomic) && conflict(o);
    };
    if (hit(c.w)) report(write ? "write/write" : "read of a value being written", a, c.w, pc);
    if (write && hit(c.r1)) report("write/read", a, c.r1, pc);
    if (write && hit(c.r2)) report("write/read", a, c.r2, pc);
    if (sh && !write && c.w.blk != blk)
      report("read of uninitialised shared memory", a, Acc{blk, 0, 0, uint16_t(tid), 0, 0, 1}, pc);
    const Acc me{blk,
                 bar,
                 wep[warp],
                 uint16_t(tid),
                 atomic,
                 0,
                 uint32_t(uintptr_t(pc) - uintptr_t(&__executable_start))};
    if (write)
      c.w = me;
    else {
      if (c.r1.blk != blk || c.r1.tid != uint16_t(tid)) c.r2 = c.r1;
      c.r1 = me;
    }
  }
}
}  // namespace
void race_launch() { launch_first = next_blk; }
void race_block(uint64_t) {
  blk = next_blk++;
  bar = 0;
  std::memset(wep, 0, sizeof wep);
}
void race_thread(int t, int w) {
  tid = t;
  warp = w;
}
void race_barrier() { ++bar; }
void race_stack(const char* lo, size_t n) {
  st_lo = uintptr_t(lo);
  st_n = n;
}
void race_warp(int w) { ++wep[w]; }
void race_shared(const char* p, size_t n) {
  sh_lo = p;
  sh_hi = p + n;
}
std::string race_take_error() {
  tid = -1;
  std::string e;
  e.swap(first_error);
  return e;
}
void race_atomic(const void* p, size_t n, void* pc) { access(p, n, true, true, pc); }
}  // namespace emulator
#define PC __builtin_return_address(0)
#define RW(N)                                                                          \
  void __tsan_read##N(void* p) { emulator::access(p, N, false, false, PC); }           \
  void __tsan_write##N(void* p) { emulator::access(p, N, true, false, PC); }           \
  void __tsan_unaligned_read##N(void* p) { emulator::access(p, N, false, false, PC); } \
  void __tsan_unaligned_write##N(void* p) { emulator::access(p, N, true, false, PC); } \
  void __tsan_volatile_read##N(void* p) { emulator::access(p, N, false, false, PC); }  \
  void __tsan_volatile_write##N(void* p) { emulator::access(p, N, true, false, PC); }
extern "C" {
RW(1) RW(2) RW(4) RW(8) RW(16) void __tsan_read_range(void* p, size_t n) {
  emulator::access(p, n, false, false, PC);
}
void __tsan_write_range(void* p, size_t n) { emulator::access(p, n, true, false, PC); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
