#include "emulator.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMULATOR_ASAN 1
#else
#define EMULATOR_ASAN 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif
#include "internal.h"
constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

#if defined(__x86_64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_ASM 1
extern "C" void emulator_switch(void** save_sp, void* new_sp);
asm(R"(.text
.globl emulator_switch
.type emulator_switch,@function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch,.-emulator_switch
.section .note.GNU-stack,"",@progbits
.text
)");
#else
#include <ucontext.h>
#define EMULATOR_ASM 0
#endif

namespace emulator {
namespace {
constexpr size_t kStack = EMULATOR_ASAN ? 256 << 10 : 64 << 10, kGuard = 4096, kArena = 227 << 10,
                 kRed = 64;
constexpr unsigned char kFill = 0xFF;  // float, bf16: NaN; int: -1

struct Fiber {
  char* lo = nullptr;    // usable stack [lo, lo + kStack)
  void* fake = nullptr;  // ASan fake stack
#if EMULATOR_ASM
  void* sp = nullptr;
#else
  ucontext_t uc;
#endif
};
struct Thread {
  uint3 tid;
  uint16_t lane, warp;
  Fiber* fiber;
  Op op;
  unsigned mask;
  uint64_t val, res;
  int arg, width;
  Loc loc;
};
struct Abort {};
struct Warp {
  unsigned exist, ready, waiting, exited;
};

[[noreturn]] void fiber_main();

struct Sched {
  std::vector<std::unique_ptr<Fiber>> pool;
  std::vector<Fiber*> free;
  Fiber main;
  Fiber* cur_fiber = nullptr;
  std::vector<Thread> th;
  Thread* cur = nullptr;
  Warp warp[32];
  unsigned warps_ready = 0, nwarps = 0;
  int n = 0, live = 0, arrived = 0, acc_or = 0, acc_cnt = 0, bar_kind = 0, bar_res = 0;
  Loc bar_loc;
  Thunk fn = nullptr;
  void* args = nullptr;
  std::string error;
  // shared memory arena
  char* arena = nullptr;
  size_t used = 0;
  void* dyn = nullptr;
  size_t dyn_bytes = 0;
  struct Area {
    char* p;
    size_t n;
    const char* name;
  };
  std::vector<Area> areas;
  uint64_t serial = 0, rng = 1;
  Order order = Order::forward;
  bool strict = true;

  ~Sched() {
    for (auto& f : pool) {
      ASAN_UNPOISON_MEMORY_REGION(f->lo, kStack);
      munmap(f->lo - kGuard, kStack + kGuard);
    }  // poison would outlive the mapping
    if (arena) {
      ASAN_UNPOISON_MEMORY_REGION(arena, kArena);
      std::free(arena);
    }
  }
  void prime(Fiber* f) {
    ASAN_UNPOISON_MEMORY_REGION(f->lo, kStack);
#if EMULATOR_ASM
    const size_t stagger =
        (pool.size() * 320) % 4096 & ~size_t(15);  // avoid 4 KiB cache aliasing of the stacks
    void** sp = reinterpret_cast<void**>(f->lo + kStack - 64 - stagger);
    *--sp = nullptr;  // fake return address: keeps rsp = 8 mod 16 at fiber_main's entry
    *--sp = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--sp = nullptr;
    f->sp = sp;
#else
    getcontext(&f->uc);
    f->uc.uc_stack.ss_sp = f->lo;
    f->uc.uc_stack.ss_size = kStack;
    f->uc.uc_link = nullptr;
    makecontext(&f->uc, reinterpret_cast<void (*)()>(&fiber_main), 0);
#endif
  }
  Fiber* new_fiber() {
    if (!free.empty()) {
      Fiber* f = free.back();
      free.pop_back();
      return f;
    }
    void* p = mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mprotect(p, kGuard, PROT_NONE);
    pool.push_back(std::make_unique<Fiber>());
    pool.back()->lo = static_cast<char*>(p) + kGuard;
    prime(pool.back().get());
    return pool.back().get();
  }
  void finish_switch() {
#if EMULATOR_ASAN
    const void* b;
    size_t s;
    __sanitizer_finish_switch_fiber(cur_fiber->fake, &b, &s);
    if (!main.lo) {
      main.lo = (char*)b;
      main_size = s;
    }  // the first switch comes from main
#endif
    race_stack(cur_fiber->lo, kStack);
  }
  size_t main_size = 0;
  void jump(Fiber* to) {
    Fiber* from = cur_fiber;
    cur_fiber = to;
#if EMULATOR_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->lo, to == &main ? main_size : kStack);
#endif
#if EMULATOR_ASM
    emulator_switch(&from->sp, to->sp);
#else
    swapcontext(&from->uc, &to->uc);
#endif
    finish_switch();
  }
  int choose(unsigned m) {  // a set bit of m, by policy
    if (order == Order::forward) return std::countr_zero(m);
    if (order == Order::reverse) return 31 - std::countl_zero(m);
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    const int r = int(rng >> 40) & 31;
    return (std::countr_zero(std::rotr(m, r)) + r) & 31;
  }
  Thread* pick() {  // stays in the current warp while it has runnable lanes (cache locality)
    int w = cur ? cur->warp : 0;
    if (!cur || !warp[w].ready || order == Order::random) {
      if (!warps_ready) return nullptr;
      w = choose(warps_ready);
    }
    Warp& W = warp[w];
    const int l = choose(W.ready);
    W.ready &= ~(1u << l);
    if (!W.ready) warps_ready &= ~(1u << w);
    return &th[size_t(w) * 32 + l];
  }
  void set_cur(Thread* t) {
    cur = t;
    threadIdx = t->tid;
    race_thread(int(t - th.data()), t->warp);
  }
  void make_ready(int w, unsigned m) {
    if ((warp[w].ready |= m)) warps_ready |= 1u << w;
  }
  void block_cur() {  // suspend the current thread until somebody makes it ready
    Thread* self = cur;
    Thread* nx = pick();
    if (nx == self) return;
    if (!nx) deadlock();
    set_cur(nx);
    if (!nx->fiber) nx->fiber = new_fiber();
    jump(nx->fiber);
  }
  [[noreturn]] void die(const std::string& m) {
    char b[160];
    std::snprintf(b, sizeof b, " [block (%u,%u,%u) thread (%u,%u,%u)]", blockIdx.x, blockIdx.y,
                  blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    error = m + b;
    throw Abort{};  // unwinds only this fiber, up to fiber_main (jumping out would leak its
                    // std::strings)
  }
  static std::string at(Loc l) {
    return std::string(l.file_name()) + ":" + std::to_string(l.line());
  }
  [[noreturn]] void deadlock() {
    std::string m = "deadlock:";
    for (int i = 0, shown = 0; i < n && shown < 6; ++i) {
      Thread& t = th[i];
      if (i && t.op == th[i - 1].op && t.loc.line() == th[i - 1].loc.line()) continue;
      m += " from thread " + std::to_string(i) +
           (t.op == Op::none      ? " exited;"
            : t.op == Op::barrier ? " at __syncthreads " + at(t.loc) + ";"
                                  : " at warp op " + at(t.loc) + ";");
      ++shown;
    }
    die(m);
  }
  void thread_exit() {
    Thread& t = *cur;
    Warp& W = warp[t.warp];
    t.op = Op::none;
    W.exited |= 1u << t.lane;
    --live;
    if (arrived && strict)
      die("divergent barrier: thread exits while others wait at __syncthreads " + at(bar_loc));
    if (arrived && arrived == live) release_barrier();
    for (unsigned m = W.waiting; m; m &= m - 1)
      if (Thread& u = th[size_t(t.warp) * 32 + std::countr_zero(m)]; u.mask >> t.lane & 1)
        die("lane exits while named in the mask of a warp op at " + at(u.loc));
  }
  void release_barrier() {
    bar_res = bar_kind == 1 ? acc_or : bar_kind == 2 ? acc_cnt == arrived : acc_cnt;
    arrived = acc_or = acc_cnt = 0;
    for (unsigned w = 0; w < nwarps; ++w) make_ready(int(w), warp[w].exist & ~warp[w].exited);
    race_barrier();
  }
  char* shared_alloc(size_t bytes, size_t align, const char* name) {
    size_t at =
        (used + kRed + std::max<size_t>(align, 16) - 1) & ~(std::max<size_t>(align, 16) - 1);
    if (at + bytes + kRed > kArena) return nullptr;
    char* p = arena + at;
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    std::memset(p, kFill, bytes);
    used = at + bytes;
    areas.push_back({p, bytes, name});
    return p;
  }
  void begin_shared() {
    if (!arena) {
      arena = static_cast<char*>(std::aligned_alloc(1024, (kArena + 1023) / 1024 * 1024));
      std::memset(arena, 0xA5, kArena);
      ASAN_POISON_MEMORY_REGION(arena, kArena);
      race_shared(arena, kArena);
    }
    dyn = dyn_bytes ? shared_alloc(dyn_bytes, 128, "dynamic") : nullptr;
  }
  std::string end_shared() {  // canaries: out-of-bounds writes are found even without ASan
    std::string bad;
    char* prev = arena;
    if (!EMULATOR_ASAN) {
      for (size_t i = 0; i <= areas.size(); ++i) {
        char* hi = i < areas.size() ? areas[i].p : arena + std::min(kArena, used + kRed);
        for (char* q = prev; q < hi; ++q)
          if ((unsigned char)*q != 0xA5) {
            *q = char(0xA5);
            if (bad.empty())
              bad = std::string("out-of-bounds shared write near '") + areas[i ? i - 1 : 0].name +
                    "'";
          }
        if (i < areas.size()) prev = areas[i].p + areas[i].n;
      }
    }
    for (auto& a : areas) {
      std::memset(a.p, 0xA5, a.n);
      ASAN_POISON_MEMORY_REGION(a.p, (a.n + 7) & ~size_t(7));
    }
    areas.clear();
    used = 0;
    return bad;
  }
  void run_block(dim3 bd) {
    static std::atomic<uint64_t> next_serial{1};
    serial = next_serial++;
    n = int(bd.x * bd.y * bd.z);
    nwarps = unsigned(n + 31) / 32;
    if (th.size() < size_t(n)) th.resize(size_t(n));
    live = n;
    arrived = acc_or = acc_cnt = 0;
    cur = nullptr;
    warps_ready = nwarps == 32 ? ~0u : (1u << nwarps) - 1;
    for (unsigned w = 0; w < nwarps; ++w) {
      const int k = std::min(32, n - int(w) * 32);
      warp[w].exist = warp[w].ready = k == 32 ? ~0u : (1u << k) - 1;
      warp[w].waiting = warp[w].exited = 0;
    }
    unsigned x = 0, y = 0, z = 0;
    for (int i = 0; i < n; ++i) {
      Thread& t = th[i];
      t.tid = {x, y, z};
      t.lane = i & 31;
      t.warp = uint16_t(i >> 5);
      t.fiber = nullptr;
      t.op = Op::none;
      if (++x == bd.x) {
        x = 0;
        if (++y == bd.y) {
          y = 0;
          ++z;
        }
      }
    }
    begin_shared();
    race_block(serial);
    Thread* t = pick();
    set_cur(t);
    t->fiber = new_fiber();
    cur_fiber = &main;
    jump(t->fiber);
    std::string bad = end_shared();
    if (error.empty()) error = bad.empty() ? race_take_error() : bad;
    if (!error.empty()) {  // some fibers are stuck mid-kernel: restart every fiber from scratch
      free.clear();
      for (auto& f : pool) {
        prime(f.get());
        f->fake = nullptr;
        free.push_back(f.get());
      }
      std::string e;
      e.swap(error);
      throw Error(e);
    }
  }
};
thread_local Sched S;
void fiber_main() {
  S.finish_switch();
  for (;;) {
    bool ok = true;
    Thread* nx = nullptr;
    try {
      S.fn(S.args);
      S.thread_exit();
      nx = S.pick();
      if (!nx && S.live) S.deadlock();
    } catch (const Abort&) {
      ok = false;
    } catch (const std::exception& e) {
      ok = false;
      S.error = e.what();
    }
    if (!ok) S.jump(&S.main);  // never resumed: run_block re-primes every fiber
    Fiber* me = S.cur_fiber;
    if (!nx) {
      S.free.push_back(me);
      S.jump(&S.main);
      continue;  // resumed with a new thread, possibly of another block or launch
    }
    S.set_cur(nx);
    if (!nx->fiber) {
      nx->fiber = me;
      continue;
    }  // a not yet started thread: no switch at all
    S.free.push_back(me);
    S.jump(nx->fiber);
  }
}
}  // namespace

Config& config() {
  static Config c;
  return c;
}
void* dynamic_shared() { return S.dyn; }
unsigned lane_id() { return S.cur->lane; }
void fail(const std::string& m, Loc l) { S.die(m + " at " + S.at(l)); }
void* Slot::raw(size_t n, size_t align, const char* name, Loc l) {
  if (serial != S.serial) {
    serial = S.serial;
    p = S.shared_alloc(n, align, name);
    if (!p) fail("shared memory exceeds 227 KiB", l);
  }
  return p;
}

int barrier(int pred, int kind, Loc l) {
  Thread& t = *S.cur;
  t.op = Op::barrier;
  t.loc = l;
  if (S.live != S.n && S.strict)
    fail("divergent barrier: __syncthreads after some threads of the block exited", l);
  if (!S.arrived) {
    S.bar_loc = l;
    S.bar_kind = kind;
  } else if (S.bar_loc.line() != l.line() || S.bar_loc.file_name() != l.file_name())
    fail(
        "divergent barrier: threads of one block meet at __syncthreads " + S.at(S.bar_loc) + " and",
        l);
  S.acc_or |= pred != 0;
  S.acc_cnt += pred != 0;
  if (++S.arrived == S.live) {
    S.release_barrier();
    Warp& W = S.warp[t.warp];
    if (S.order == Order::forward) {  // the last arriver goes on
      if (!(W.ready &= ~(1u << t.lane))) S.warps_ready &= ~(1u << t.warp);
      return S.bar_res;
    }
  }
  S.block_cur();
  return S.bar_res;
}

uint64_t collective(Op op, unsigned mask, uint64_t v, int arg, int width, Loc l) {
  Thread& t = *S.cur;
  Warp& W = S.warp[t.warp];
  Thread* base = &S.th[size_t(t.warp) * 32];
  const unsigned bit = 1u << t.lane;
  if (!(mask & bit)) fail("warp op: calling lane is not in its mask", l);
  if (mask & ~W.exist && !(op == Op::syncwarp))
    fail("warp op: mask names lanes beyond the block (block size not a multiple of 32)", l);
  mask &= W.exist;
  if (mask & W.exited) fail("warp op: mask names lanes that have exited", l);
  t.op = op;
  t.mask = mask;
  t.val = v;
  t.arg = arg;
  t.width = width;
  t.loc = l;
  if (const unsigned others = W.waiting & mask) {
    Thread& u = base[std::countr_zero(others)];
    if (u.mask != mask)
      fail("warp op: lanes pass different masks (other at " + S.at(u.loc) + ")", l);
    if (u.op != op || u.loc.line() != l.line())
      fail("warp op: lanes diverged (other lane is at " + S.at(u.loc) + ")", l);
  }
  W.waiting |= bit;
  if ((W.waiting & mask) != mask) {
    S.block_cur();
    return t.res;
  }
  W.waiting &= ~mask;  // last arriver: compute every lane's result
  uint64_t all = 0;
  if (op >= Op::ballot) {
    int64_t r = op == Op::rmin ? INT64_MAX : op == Op::rmax ? INT64_MIN : 0;
    for (unsigned m = mask; m; m &= m - 1) {
      const int i = std::countr_zero(m);
      const int64_t x = int64_t(base[i].val);
      r = op == Op::ballot ? r | int64_t(uint64_t(x) << i)
          : op == Op::radd ? r + x
          : op == Op::rmin ? std::min(r, x)
                           : std::max(r, x);
    }
    all = uint64_t(r);
  }
  for (unsigned m = mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    Thread& q = base[i];
    if (op == Op::syncwarp || op >= Op::ballot) {
      q.res = all;
      continue;
    }
    const int w = q.width, seg = i & ~(w - 1);
    int src = op == Op::shfl        ? seg + (q.arg & (w - 1))
              : op == Op::shfl_up   ? i - q.arg
              : op == Op::shfl_down ? i + q.arg
                                    : i ^ q.arg;
    if (op == Op::shfl_up ? src < seg : src >= seg + w) src = i;
    if (src != i && !(mask >> src & 1))
      fail("shuffle: lane " + std::to_string(i) + " reads lane " + std::to_string(src) +
               ", which is not in the mask",
           l);
    q.res = base[src].val;
  }
  if (op == Op::syncwarp) race_warp(t.warp);
  S.make_ready(t.warp, mask & ~bit);
  return t.res;
}

void run(Thunk f, void* args, dim3 g, dim3 b, size_t smem) {
  const Config c = config();
  const uint64_t nb = uint64_t(g.x) * g.y * g.z;
  if (!nb || uint64_t(b.x) * b.y * b.z == 0 || uint64_t(b.x) * b.y * b.z > 1024 || b.z > 64 ||
      g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || smem > kArena - 1024)
    throw Error("invalid launch configuration");
  race_launch();
  auto work = [&](uint64_t first, uint64_t step) {
    S.fn = f;
    S.args = args;
    S.order = c.order;
    S.rng = c.seed * 0x9E3779B97F4A7C15ull | 1;
    S.strict = c.strict;
    S.dyn_bytes = smem;
    blockDim = b;
    gridDim = g;
    for (uint64_t i = first; i < nb; i += step) {
      const uint64_t j = c.order == Order::forward ? i : nb - 1 - i;
      blockIdx = {unsigned(j % g.x), unsigned(j / g.x % g.y), unsigned(j / g.x / g.y)};
      S.run_block(b);
    }
  };
  const int nt =
      EMULATOR_RACE_ON ? 1 : int(std::min<uint64_t>(nb, uint64_t(std::max(1, c.os_threads))));
  if (nt == 1) return work(0, 1);
  std::vector<std::thread> ts;
  std::exception_ptr ep;
  std::mutex mu;
  for (int i = 0; i < nt; ++i)
    ts.emplace_back([&, i] {
      try {
        work(uint64_t(i), uint64_t(nt));
      } catch (...) {
        std::lock_guard g2(mu);
        ep = std::current_exception();
      }
    });
  for (auto& t : ts) t.join();
  if (ep) std::rethrow_exception(ep);
}
}  // namespace emulator

#define EMULATOR_ATOMIC(T, NAME, EXPR)                                \
  T NAME(T* p, T v) {                                                 \
    emulator::race_atomic(p, sizeof(T), __builtin_return_address(0)); \
    std::atomic_ref<T> a(*p);                                         \
    return EXPR;                                                      \
  }
EMULATOR_ATOMIC(float, atomicAdd, a.fetch_add(v))
EMULATOR_ATOMIC(double, atomicAdd, a.fetch_add(v))
EMULATOR_ATOMIC(int, atomicAdd, a.fetch_add(v))
EMULATOR_ATOMIC(unsigned, atomicAdd, a.fetch_add(v))
EMULATOR_ATOMIC(unsigned long long, atomicAdd, a.fetch_add(v))
EMULATOR_ATOMIC(unsigned, atomicExch, a.exchange(v))
int atomicMax(int* p, int v) {
  emulator::race_atomic(p, 4, __builtin_return_address(0));
  std::atomic_ref<int> a(*p);
  int o = a.load();
  while (o < v && !a.compare_exchange_weak(o, v)) {
  }
  return o;
}
unsigned atomicCAS(unsigned* p, unsigned c, unsigned v) {
  emulator::race_atomic(p, 4, __builtin_return_address(0));
  std::atomic_ref<unsigned>(*p).compare_exchange_strong(c, v);
  return c;
}
