// The functions that code compiled with -fsanitize=thread calls, in place of ThreadSanitizer's
// runtime: plain accesses go to the race checker; C++ atomics, which no kernel uses, are only done.

#include "race_checker.h"

namespace {

using emulator::RaceChecker;

inline void read(const void* memory, size_t bytes, const void* caller) {
  emulator::race_checker().access(memory, bytes, RaceChecker::Kind::read, caller);
}
inline void write(const void* memory, size_t bytes, const void* caller) {
  emulator::race_checker().access(memory, bytes, RaceChecker::Kind::write, caller);
}

}  // namespace

#define HOOK(name, action, bytes) \
  void __tsan_##name(void* memory) { action(memory, bytes, __builtin_return_address(0)); }

#define HOOKS(bytes)                                \
  HOOK(read##bytes, read, bytes)                    \
  HOOK(write##bytes, write, bytes)                  \
  HOOK(unaligned_read##bytes, read, bytes)          \
  HOOK(unaligned_write##bytes, write, bytes)        \
  HOOK(volatile_read##bytes, read, bytes)           \
  HOOK(volatile_write##bytes, write, bytes)         \
  HOOK(unaligned_volatile_read##bytes, read, bytes) \
  HOOK(unaligned_volatile_write##bytes, write, bytes)

#define CHANGE_HOOK(bits, T, name)                               \
  T __tsan_atomic##bits##_##name(volatile T* to, T value, int) { \
    return __atomic_##name(to, value, __ATOMIC_SEQ_CST);         \
  }

#define EXCHANGE_HOOK(bits, T, name, weak)                                                     \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile T* to, T* expected, T value, int, \
                                                    int) {                                     \
    return __atomic_compare_exchange_n(to, expected, value, weak, __ATOMIC_SEQ_CST,            \
                                       __ATOMIC_SEQ_CST);                                      \
  }

#define ATOMIC_HOOKS(bits, T)                                      \
  T __tsan_atomic##bits##_load(const volatile T* from, int) {      \
    return __atomic_load_n(from, __ATOMIC_SEQ_CST);                \
  }                                                                \
  void __tsan_atomic##bits##_store(volatile T* to, T value, int) { \
    __atomic_store_n(to, value, __ATOMIC_SEQ_CST);                 \
  }                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* to, T value, int) { \
    return __atomic_exchange_n(to, value, __ATOMIC_SEQ_CST);       \
  }                                                                \
  CHANGE_HOOK(bits, T, fetch_add)                                  \
  CHANGE_HOOK(bits, T, fetch_sub)                                  \
  CHANGE_HOOK(bits, T, fetch_and)                                  \
  CHANGE_HOOK(bits, T, fetch_or)                                   \
  CHANGE_HOOK(bits, T, fetch_xor)                                  \
  EXCHANGE_HOOK(bits, T, strong, false)                            \
  EXCHANGE_HOOK(bits, T, weak, true)

extern "C" {

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

ATOMIC_HOOKS(8, uint8_t)
ATOMIC_HOOKS(16, uint16_t)
ATOMIC_HOOKS(32, uint32_t)
ATOMIC_HOOKS(64, uint64_t)

void __tsan_read_range(void* memory, size_t bytes) {
  read(memory, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* memory, size_t bytes) {
  write(memory, bytes, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
