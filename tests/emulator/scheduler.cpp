#include "scheduler.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "text.h"
#include "watcher.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

Watcher* watcher = nullptr;
Barriers* barriers = nullptr;

namespace {

constexpr unsigned first_lanes(int n) { return n >= 32 ? ~0u : (1u << n) - 1; }

uint3 unravel(uint64_t i, dim3 extent) {
  return {static_cast<unsigned>(i % extent.x), static_cast<unsigned>(i / extent.x % extent.y),
          static_cast<unsigned>(i / extent.x / extent.y)};
}

}  // namespace

Config& config() {
  static Config config;
  return config;
}

Scheduler& scheduler() {
  static auto& scheduler = *new Scheduler;  // the host does not end what the device made
  return scheduler;
}

void run(void (*kernel)(void*), void* arguments, dim3 grid, dim3 block, size_t dynamic_bytes) {
  scheduler().run(kernel, arguments, grid, block, dynamic_bytes);
}

void fail(const std::string& what, Location where) {
  scheduler().fail(what + " at " + text(where));
}

void* dynamic_shared() { return scheduler().shared().dynamic(); }

void* SharedVariable::get(size_t bytes, size_t alignment, const char* name, Location where) {
  Scheduler& s = scheduler();
  if (block_ != s.block_number()) {
    block_ = s.block_number();
    memory_ = s.shared().take(bytes, alignment, name);
    if (!memory_) {
      fail(sentence("more shared memory than the 48 KiB static, ", s.shared().max() >> 10,
                    " KiB in all that the kernel may have"),
           where);
    }
  }
  return memory_;
}

void Scheduler::run(void (*kernel)(void*), void* arguments, dim3 grid, dim3 block,
                    size_t dynamic_bytes) {
  kernel_ = kernel;
  arguments_ = arguments;
  config_ = config();
  random_ = config_.seed * 0x9E3779B97F4A7C15u | 1;
  blockDim = block;
  gridDim = grid;
  if (watcher) watcher->launch_begins();
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  for (uint64_t i = 0; i < blocks; ++i) {
    blockIdx = unravel(config_.order == Order::forward ? i : blocks - 1 - i, grid);
    shared_.begin_block(dynamic_bytes);
    run_block(block);
  }
}

void Scheduler::run_block(dim3 block) {
  begin_block(block);
  if (watcher) watcher->block_begins(shared_.memory(), SharedMemory::memory_bytes());
  set_current(next());
  current_->fiber = free_fiber();
  fiber_ = current_->fiber;
  host_.jump(*fiber_);
  const std::string damage = shared_.end_block();
  const std::string seen = watcher ? watcher->block_ends() : "";
  if (error_.empty())
    error_ = damage.empty() ? seen : sentence(damage, " [block ", text(blockIdx), "]");
  if (error_.empty()) return;
  forget_threads();
  throw Error(std::exchange(error_, ""));
}

void Scheduler::begin_block(dim3 block) {
  ++block_number_;
  count_ = live_ = static_cast<int>(block.x * block.y * block.z);
  arrived_ = in_favour_ = 0;
  current_ = nullptr;
  const int warps = (count_ + warpSize - 1) / warpSize;
  ready_warps_ = first_lanes(warps);
  for (int w = 0; w < warps; ++w) {
    const unsigned exist = first_lanes(count_ - w * warpSize);
    warps_[w] = {.exist = exist, .ready = exist, .waiting = 0, .left = 0};
  }
  threads_.clear();
  for (AsyncCopies& copies : copies_) copies.clear();
  for (int i = 0; i < count_; ++i) {
    threads_.push_back({.index = unravel(static_cast<uint64_t>(i), block),
                        .lane = static_cast<unsigned>(i % warpSize),
                        .warp = i / warpSize,
                        .fiber = nullptr,
                        .call = {},
                        .result = 0});
  }
}

// Frees all fibers; those of a failed block stopped midway.
void Scheduler::forget_threads() {
  free_.clear();
  for (const auto& fiber : fibers_) {
    fiber->rewind();
    free_.push_back(fiber.get());
  }
}

Fiber* Scheduler::free_fiber() {
  if (free_.empty()) {
    return fibers_.emplace_back(std::make_unique<Fiber>(&serve_forever)).get();
  }
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

// The function of a fiber: runs threads of this block and of later blocks.
void Scheduler::serve_forever() {
  Scheduler& s = scheduler();
  s.fiber_->arrive();
  while (true) {
    Fiber* self = s.fiber_;
    Thread* next = s.serve();
    if (next && !next->fiber) {  // a thread that has not begun needs no switch
      next->fiber = self;
      continue;
    }
    if (s.error_.empty()) s.free_.push_back(self);
    s.fiber_ = next ? next->fiber : &s.host_;
    self->jump(*s.fiber_);
  }
}

// Runs the current thread to its end.  Returns the next one, or null if the block is done or has
// failed.
Scheduler::Thread* Scheduler::serve() {
  try {
    kernel_(arguments_);
    leave();
    Thread* following = next();
    if (!following && live_) deadlock();
    if (following) set_current(following);
    return following;
  } catch (const Ended&) {
    return nullptr;
  } catch (const std::exception& e) {
    error_ = e.what();
    return nullptr;
  }
}

// Chooses one of the set bits.
unsigned Scheduler::choose(unsigned bits) {
  if (config_.order == Order::forward) return static_cast<unsigned>(std::countr_zero(bits));
  if (config_.order == Order::reverse) return 31 - static_cast<unsigned>(std::countl_zero(bits));
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const unsigned turn = random_ >> 40 & 31;
  const int found = std::countr_zero(std::rotr(bits, static_cast<int>(turn)));
  return (static_cast<unsigned>(found) + turn) & 31;
}

// Stays in a warp while it can, as its stacks are cached; not in random order.
Scheduler::Thread* Scheduler::next() {
  auto warp = static_cast<unsigned>(current_ ? current_->warp : 0);
  if (!current_ || !warps_[warp].ready || config_.order == Order::random) {
    if (!ready_warps_) return nullptr;
    warp = choose(ready_warps_);
  }
  const unsigned lane = choose(warps_[warp].ready);
  warps_[warp].ready &= ~(1u << lane);
  if (!warps_[warp].ready) ready_warps_ &= ~(1u << warp);
  return &threads_[warp * warpSize + lane];
}

void Scheduler::set_current(Thread* thread) {
  current_ = thread;
  threadIdx = thread->index;
  if (watcher) watcher->thread_runs(static_cast<int>(thread - threads_.data()));
}

void Scheduler::make_ready(int warp, unsigned lanes) {
  warps_[warp].ready |= lanes;
  if (warps_[warp].ready) ready_warps_ |= 1u << warp;
}

// Runs other threads until the current one is ready.
void Scheduler::wait() {
  Thread* self = current_;
  Thread* other = next();
  if (other == self) return;
  if (!other) deadlock();
  set_current(other);
  if (!other->fiber) other->fiber = free_fiber();
  fiber_ = other->fiber;
  self->fiber->jump(*fiber_);
}

// Ends the current thread.
void Scheduler::leave() {
  Thread& t = *current_;
  Warp& warp = warps_[t.warp];
  t.call.operation = Operation::none;
  warp.left |= 1u << t.lane;
  --live_;
  if (arrived_ && config_.strict) {
    fail("divergent barrier: a thread leaves while others wait at __syncthreads " +
         text(barrier_at_));
  }
  if (arrived_ && arrived_ == live_) release_barrier();
  for (unsigned rest = warp.waiting; rest; rest &= rest - 1) {
    const WarpCall& call = threads_[static_cast<size_t>(t.warp) * warpSize +
                                    static_cast<size_t>(std::countr_zero(rest))]
                               .call;
    if (call.mask >> t.lane & 1) {
      fail("a lane leaves while others wait for it in a warp operation at " + text(call.where));
    }
  }
}

void Scheduler::fail(const std::string& what) {
  error_ = what + whose(blockIdx, threadIdx);
  throw Ended{};
}

void Scheduler::deadlock() {
  constexpr int max = 6;
  const auto place = [](const WarpCall& call) {
    if (call.operation == Operation::none) return std::string("ended");
    const bool barrier = call.operation == Operation::barrier;
    return sentence("at ", barrier ? "__syncthreads " : "a warp operation ", text(call.where));
  };
  std::string what = "deadlock:";
  std::string before;
  for (int i = 0, shown = 0; i < count_ && shown < max; ++i) {
    const std::string now = place(threads_[static_cast<size_t>(i)].call);
    if (now == before) continue;
    what += sentence(" from thread ", i, " on ", now, ";");
    before = now;
    ++shown;
  }
  fail(what);
}

int barrier(Vote vote, bool predicate, Location where) {
  return scheduler().barrier(vote, predicate, where);
}

int Scheduler::barrier(Vote vote, bool predicate, Location where) {
  Thread& t = *current_;
  t.call.operation = Operation::barrier;
  t.call.where = where;
  if (live_ != count_ && config_.strict) {
    fail("divergent barrier: __syncthreads after some threads of the block have left, at " +
         text(where));
  }
  if (arrived_ == 0) {
    barrier_at_ = where;
    vote_ = vote;
  } else if (barrier_at_.line != where.line || barrier_at_.file != where.file) {
    fail("divergent barrier: threads of one block meet at __syncthreads " + text(barrier_at_) +
         " and at " + text(where));
  }
  in_favour_ += predicate;
  if (++arrived_ == live_) {
    release_barrier();
    if (config_.order == Order::forward) {  // the last to arrive continues
      Warp& warp = warps_[t.warp];
      warp.ready &= ~(1u << t.lane);
      if (!warp.ready) ready_warps_ &= ~(1u << t.warp);
      return outcome_;
    }
  }
  wait();
  return outcome_;
}

void Scheduler::release_barrier() {
  outcome_ = vote_ == Vote::any   ? in_favour_ != 0
             : vote_ == Vote::all ? in_favour_ == arrived_
                                  : in_favour_;
  arrived_ = in_favour_ = 0;
  const int warps = (count_ + warpSize - 1) / warpSize;
  for (int w = 0; w < warps; ++w) make_ready(w, warps_[w].exist & ~warps_[w].left);
  if (watcher && counts(barrier_at_)) watcher->barrier();
}

}  // namespace emulator
