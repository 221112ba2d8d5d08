#pragma once

// A fiber: a stack, and the place where its function stopped.  A jump from one to another costs a
// few instructions, where the system's would cost a call of the kernel.

#include <cstddef>

#include "sanitizer.h"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

class Fiber {
 public:
  static constexpr size_t stack_bytes = (finds_bad_addresses ? 256 : 64) << 10;

  // The caller's own stack.
  Fiber() = default;
  // Runs function() when it is first jumped to; which calls arrive() first and never returns.
  explicit Fiber(void (*function)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Forgets where it stopped: it will run its function anew.
  void rewind();

  // Goes on at `to`; comes back when somebody jumps to this one.
  void jump(Fiber& to);
  void arrive();

 private:
  void (*function_)() = nullptr;
  const void* stack_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  size_t skew_ = 0;
#if defined(__x86_64__)
  void* stopped_at_ = nullptr;
#else
  ucontext_t stopped_at_ = {};
#endif
};

}  // namespace emulator
