#pragma once

// AddressSanitizer's functions; empty in other builds.

#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ADDRESS_SANITIZER 1
#endif

#if EMULATOR_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

#if EMULATOR_ADDRESS_SANITIZER
constexpr bool finds_bad_addresses = true;
inline void poison(const void* memory, size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(const void* memory, size_t bytes) {
  __asan_unpoison_memory_region(memory, bytes);
}
#else
constexpr bool finds_bad_addresses = false;
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
#endif

}  // namespace emulator
