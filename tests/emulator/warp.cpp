// Operations of a warp: the last lane to arrive computes the results of all lanes.

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "scheduler.h"
#include "text.h"
#include "watcher.h"

namespace emulator {

uint64_t warp_operation(const WarpCall& call) { return scheduler().warp_operation(call); }

uint64_t Scheduler::warp_operation(const WarpCall& call) {
  Thread& t = *current_;
  Warp& warp = warps_[t.warp];
  const unsigned bit = 1u << t.lane;
  t.call = call;
  if (call.operation == Operation::sync) t.call.mask &= warp.exist;
  const unsigned mask = t.call.mask;
  check_call(warp, t.call, t.lane, warp.waiting & mask);
  warp.waiting |= bit;
  if ((warp.waiting & mask) != mask) {
    wait();
    return t.result;
  }
  warp.waiting &= ~mask;
  finish(warp, t.call);
  make_ready(t.warp, mask & ~bit);
  return t.result;
}

void Scheduler::check_call(const Warp& warp, const WarpCall& call, unsigned lane, unsigned others) {
  const auto refuse = [&](const std::string& what) {
    emulator::fail("warp operation: " + what, call.where);
  };
  if (!(call.mask >> lane & 1)) refuse("the calling lane is not in its mask");
  if (call.mask & ~warp.exist) {
    refuse("the mask names lanes beyond the block, whose size is not a multiple of 32,");
  }
  if (call.mask & warp.left) refuse("the mask names lanes that have left");
  if (!others) return;
  const size_t first = static_cast<size_t>(current_ - threads_.data()) - lane;
  const WarpCall& other = threads_[first + static_cast<size_t>(std::countr_zero(others))].call;
  if (other.mask != call.mask) {
    refuse("lanes pass different masks, another at " + text(other.where) + ", this");
  }
  if (other.operation != call.operation || other.where.line != call.where.line) {
    refuse("lanes have diverged, another is at " + text(other.where) + ", this");
  }
}

void Scheduler::finish(const Warp& warp, const WarpCall& call) {
  Thread* lanes = &threads_[static_cast<size_t>(&warp - warps_) * warpSize];
  if (call.operands) return combine_matrices(call.operation, lanes);
  const bool alike = call.operation == Operation::sync || call.operation >= Operation::ballot;
  const uint64_t all = alike ? combine(call, lanes) : 0;
  for (unsigned rest = call.mask; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    lanes[lane].result = alike ? all : fetch(call, lanes, lane);
  }
  if (watcher && call.operation == Operation::sync && counts(call.where)) {
    watcher->barrier_of(static_cast<int>(&warp - warps_));
  }
}

uint64_t Scheduler::combine(const WarpCall& call, const Thread* lanes) {
  using Limits = std::numeric_limits<int64_t>;
  int64_t all = call.operation == Operation::min   ? Limits::max()
                : call.operation == Operation::max ? Limits::min()
                                                   : 0;
  for (unsigned rest = call.mask; rest; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto value = static_cast<int64_t>(lanes[lane].call.value);
    all = call.operation == Operation::ballot ? all | value << lane
          : call.operation == Operation::min  ? std::min(all, value)
          : call.operation == Operation::max  ? std::max(all, value)
                                              : all + value;
  }
  return static_cast<uint64_t>(all);
}

// The value a lane gets from a shuffle: its own if the source is outside its segment.
uint64_t Scheduler::fetch(const WarpCall& call, const Thread* lanes, int lane) {
  const WarpCall& own = lanes[lane].call;
  const int segment = lane & ~(own.width - 1), end = segment + own.width;
  int from = call.operation == Operation::shuffle      ? segment + (own.argument & (own.width - 1))
             : call.operation == Operation::shuffle_up ? lane - own.argument
             : call.operation == Operation::shuffle_down ? lane + own.argument
                                                         : lane ^ own.argument;
  if (call.operation == Operation::shuffle_up ? from < segment : from >= end) from = lane;
  if (from != lane && !(call.mask >> from & 1)) {
    emulator::fail(sentence("warp operation: lane ", lane, " reads lane ", from,
                            ", which is not in the mask,"),
                   call.where);
  }
  return lanes[from].call.value;
}

namespace {

// The return address, which is in the kernel's code.
template <class T, class Change>
[[gnu::always_inline]] inline T atomically(T* to, Change change) {
  if (watcher) watcher->atomic(to, sizeof(T), __builtin_return_address(0));
  const std::atomic_ref<T> place(*to);
  T before = place.load();
  while (!place.compare_exchange_weak(before, change(before))) {
  }
  return before;
}

}  // namespace
}  // namespace emulator

#define EMULATOR_ATOMIC(T, name, expression)                               \
  T name(T* to, T value) {                                                 \
    return emulator::atomically(to, [&](T before) { return expression; }); \
  }
EMULATOR_ATOMIC(float, atomicAdd, before + value)
EMULATOR_ATOMIC(double, atomicAdd, before + value)
EMULATOR_ATOMIC(int, atomicAdd, before + value)
EMULATOR_ATOMIC(unsigned, atomicAdd, before + value)
EMULATOR_ATOMIC(unsigned long long, atomicAdd, before + value)
EMULATOR_ATOMIC(int, atomicMax, std::max(before, value))
EMULATOR_ATOMIC(unsigned, atomicExch, (static_cast<void>(before), value))

unsigned atomicCAS(unsigned* to, unsigned expected, unsigned value) {
  return emulator::atomically(to,
                              [&](unsigned before) { return before == expected ? value : before; });
}
