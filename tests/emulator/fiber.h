#pragma once

// A fiber: a stack, and the point where its function stopped.  A jump between fibers takes a few
// instructions; the system's own needs a system call.

#include <cstddef>

#include "sanitizer.h"
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

class Fiber {
 public:
  static constexpr size_t stack_bytes = (finds_bad_addresses ? 256 : 64) << 10;

  // A fiber for the caller's own stack.
  Fiber() = default;
  // Runs function() at the first jump to it; function() calls arrive() first and never returns.
  explicit Fiber(void (*function)(), size_t bytes = stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next jump to it run its function from the beginning.
  void rewind();

  // Continues at `to`; returns at the next jump to this fiber.  What it does then comes after what
  // came before for ThreadSanitizer, if ordered.
  void jump(Fiber& to, bool ordered = true);
  void arrive();

 private:
  void (*function_)() = nullptr;
  const void* stack_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* track_ = nullptr;       // ThreadSanitizer's
  size_t skew_ = 0;
#if defined(__x86_64__)
  void* stopped_at_ = nullptr;
#else
  ucontext_t stopped_at_ = {};
#endif
};

}  // namespace emulator
