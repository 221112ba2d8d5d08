#pragma once

// In builds with AddressSanitizer, the bytes of an arena that belong to no tensor are poisoned:
// free memory, and the padding of tensors.  A kernel that accesses them aborts the program, if the
// host can address the memory at all.  In other builds these functions do nothing.

#include <algorithm>
#include <cstddef>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPOOL_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SPOOL_ADDRESS_SANITIZER 1
#endif
#if SPOOL_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace spool {

#if SPOOL_ADDRESS_SANITIZER
constexpr bool bounds_are_checked = true;
inline void poison(const void* data, size_t bytes) { __asan_poison_memory_region(data, bytes); }
inline void unpoison(const void* data, size_t bytes) { __asan_unpoison_memory_region(data, bytes); }
#else
constexpr bool bounds_are_checked = false;
inline void poison(const void*, size_t) {}
inline void unpoison(const void*, size_t) {}
#endif

// Poisons an arena's memory before its first allocation, but only the beginning: poisoning takes
// memory itself.
inline void poison_arena(const void* data, size_t bytes) {
  constexpr size_t max_bytes = size_t{256} << 20;
  poison(data, std::min(bytes, max_bytes));
}

}  // namespace spool
