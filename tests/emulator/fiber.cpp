#include "fiber.h"

#include <sys/mman.h>

#include <new>

#include "thread_sanitizer.h"

#if defined(__x86_64__)
extern "C" void emulator_switch(void** stopped_at, void* go_on_at);
// Saves the registers that a call preserves on one stack, and restores them from the other.
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
#endif

namespace emulator {
namespace {

constexpr size_t guard_bytes = 4096;  // below the stack, to catch overflows

Fiber* came_from = nullptr;

}  // namespace

Fiber::Fiber(void (*function)(), size_t bytes) : function_(function), bytes_(bytes) {
  void* memory = ::mmap(nullptr, guard_bytes + bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::mprotect(memory, guard_bytes, PROT_NONE);
  stack_ = static_cast<char*>(memory) + guard_bytes;
  static size_t made = 0;  // stacks at equal page offsets evict one another from the cache
  skew_ = made++ * 320 % 4096 / 16 * 16;
  rewind();
}

Fiber::~Fiber() {
  if (!function_) return;
  end_track(track_);
  unpoison(stack_, bytes_);  // poison would outlive the memory
  ::munmap(static_cast<char*>(const_cast<void*>(stack_)) - guard_bytes, guard_bytes + bytes_);
}

void Fiber::rewind() {
  unpoison(stack_, bytes_);
  fake_stack_ = nullptr;
  end_track(track_);
  track_ = make_track();
#if defined(__x86_64__)
  constexpr int saved_registers = 6;
  char* top = static_cast<char*>(const_cast<void*>(stack_)) + bytes_;
  void** place = reinterpret_cast<void**>(top - 64 - skew_);
  *--place = nullptr;  // a return address, so that the stack is aligned as after a call
  *--place = reinterpret_cast<void*>(function_);
  for (int i = 0; i < saved_registers; ++i) *--place = nullptr;
  stopped_at_ = place;
#else
  ::getcontext(&stopped_at_);
  stopped_at_.uc_stack.ss_sp = const_cast<void*>(stack_);
  stopped_at_.uc_stack.ss_size = bytes_;
  stopped_at_.uc_link = nullptr;
  ::makecontext(&stopped_at_, function_, 0);
#endif
}

void Fiber::jump(Fiber& to, bool ordered) {
  came_from = this;
  if (!function_) track_ = running_track();
  go_on_as(to.track_, ordered);
#if EMULATOR_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_, to.bytes_);
#endif
#if defined(__x86_64__)
  emulator_switch(&stopped_at_, to.stopped_at_);
#else
  ::swapcontext(&stopped_at_, &to.stopped_at_);
#endif
  arrive();
}

void Fiber::arrive() {
#if EMULATOR_ADDRESS_SANITIZER
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &stack, &bytes);
  if (!came_from->function_) {  // the caller's own stack, whose bounds are known from now on
    came_from->stack_ = stack;
    came_from->bytes_ = bytes;
  }
#endif
}

}  // namespace emulator
